// The checker must see each kind of damage; the property tests rely on that.
import { describe, expect, it } from 'vitest';
import { checkIntegrity, type SchedulerState } from '../../../src/core/integrity.ts';
import { KvManager } from '../../../src/core/kv-manager.ts';
import { Sequence } from '../../../src/core/sequence.ts';
import { PlanBuffer } from '../../../src/core/step-plan.ts';
import { isBeforeUnder, WaitingQueue } from '../../../src/core/waiting-queue.ts';
import { makeOptions, makeRequest, tokensOf } from './scheduler-fixtures.ts';

/** One running sequence of 40 tokens (2 full blocks and 8 tokens), one free cached block, two waiting ones. */
function makeState() {
  const options = makeOptions({ maxNumSeqs: 2, numBlocks: 10 });
  const kv = new KvManager({ ...options, maxTokensPerStep: 2048, keepsAll: false });
  const isBefore = isBeforeUnder('fcfs');
  const make = (id: string, order: number, numTokens: number) => {
    const sequence = new Sequence(makeRequest(id, tokensOf(order, numTokens)), {
      order,
      maxTotalTokens: 100,
      numGroups: 1,
    });
    kv.register(sequence);
    return sequence;
  };
  const compute = (sequence: Sequence) => {
    kv.adoptPrefix(sequence, 0);
    kv.grow(sequence, sequence.numTokens);
    sequence.computedTokens = sequence.numTokens;
    kv.fileFullBlocks(sequence);
  };
  const gone = make('gone', 0, 16);
  compute(gone);
  kv.release(gone);
  const runs = make('runs', 1, 40);
  compute(runs);
  runs.status = 'running';
  runs.slot = 1;
  const waiting = new WaitingQueue(isBefore);
  const waits = [make('first', 2, 3), make('second', 3, 3)];
  for (const sequence of waits) waiting.push(sequence);
  const plan = new PlanBuffer();
  plan.begin(0, 2048, 2048);
  plan.push(runs, 1, true, false);
  plan.end();
  runs.numPlaceholders = 1;
  const state: SchedulerState = {
    options,
    kv,
    isBefore,
    waiting,
    running: [runs],
    live: new Map([runs, ...waits].map((each) => [each.id, each])),
    freeSlots: [0],
    plans: [plan],
  };
  return { state, runs, waits, plan, pool: kv.pool };
}

type Parts = ReturnType<typeof makeState>;

const damages: Array<[string, RegExp, (parts: Parts) => void]> = [
  ['a lost reference', /references, tables name it/, ({ pool, runs }) => pool.refCounts[runs.blockTables[0]![0]!]!--],
  ['a block in two tables', /references, tables name it/, ({ runs }) => runs.blockTables[0]!.copyWithin(1, 0, 1)],
  ['a reference to the null block', /block 0 has 1 references/, ({ pool }) => pool.refCounts[0]!++],
  [
    'a broken link back',
    /links back/,
    ({ pool }) => pool.previous.fill(0, pool.next[pool.numBlocks]!, pool.next[pool.numBlocks]! + 1),
  ],
  [
    'a block cut out of the free list',
    /lost: no references and not free/,
    ({ pool }) => {
      const [sentinel, first] = [pool.numBlocks, pool.next[pool.numBlocks]!];
      pool.next[sentinel] = pool.next[first]!;
      pool.previous[pool.next[first]!] = sentinel;
    },
  ],
  ['a wrong count of free blocks', /the count says/, ({ pool }) => pool.numFree++],
  ['a wrong count of cached blocks', /free blocks are cached/, ({ pool }) => pool.numFreeCached--],
  ['a wrong count of contents', /index of cached contents/, ({ pool }) => pool.contents.size++],
  [
    'more computed than known',
    /has computed 60 of 41/,
    ({ runs }) => {
      runs.computedTokens = 60;
    },
  ],
  [
    'more computed than there is room',
    /in room for/,
    ({ runs, pool }) => {
      pool.release(runs.blockTables[0]![2]!);
      runs.blockTables[0]![2] = 0;
      runs.capacityTokens = 32;
      runs.numTableBlocks = 2;
    },
  ],
  [
    'a whole empty block',
    /empty token slots/,
    ({ runs }) => {
      runs.computedTokens = 20;
    },
  ],
  [
    'a missing block',
    /lacks block 2/,
    ({ runs, pool }) => {
      pool.release(runs.blockTables[0]![2]!);
      runs.blockTables[0]![2] = 0;
    },
  ],
  [
    'a shared slot',
    /slots are lost or shared/,
    ({ runs }) => {
      runs.slot = 0;
    },
  ],
  [
    'a wrong status',
    /runs with status/,
    ({ runs }) => {
      runs.status = 'waiting';
    },
  ],
  [
    'a waiting one with a slot',
    /waits and holds something/,
    ({ waits }) => {
      waits[0]!.slot = 1;
    },
  ],
  [
    'a wrong place in the queue',
    /waits with status/,
    ({ waits }) => {
      waits[1]!.waitingIndex = 0;
    },
  ],
  [
    'a forgotten sequence',
    /live sequences/,
    ({ state }) => (state.live as Map<string, unknown>).set('x', { ...makeState().waits[0] }),
  ],
  [
    'tokens beyond the budget',
    /miscounts its tokens/,
    ({ plan }) => {
      plan.numTokens = 2;
    },
  ],
  [
    'a placeholder too many',
    /placeholders for/,
    ({ runs }) => {
      runs.numPlaceholders = 2;
    },
  ],
];

describe('checkIntegrity', () => {
  it('accepts a sound state', () => {
    checkIntegrity(makeState().state);
  });

  it.each(damages)('sees %s', (_, message, damage) => {
    const parts = makeState();
    damage(parts);
    expect(() => checkIntegrity(parts.state)).toThrow(message);
  });
});
