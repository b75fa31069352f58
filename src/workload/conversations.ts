// Multi-turn workloads: a conversation's next prompt is everything said before plus a new message. The simulator and the load
// client send a turn when its time has come and the turn before it has been answered.

import { ArrivalClock } from './arrivals.ts';
import { LengthPairs } from './length-pairs.ts';
import { LengthSampler } from './lengths.ts';
import { hashIdsOf, SYNTHETIC_BLOCK_TOKENS } from './prefixes.ts';
import { RandomSource } from './random-source.ts';
import type { SyntheticSpec } from './synthetic-workload.ts';
import { TimeHeap } from './time-heap.ts';
import type { WorkloadRequest } from './workload.ts';

interface Conversation {
  readonly id: number;
  numTurnsLeft: number;
  /** Tokens said so far, the shared part included. */
  numTokens: number;
}

/** Without end: the caller counts. In order of arrival; in a closed loop the users' conversations take turns. */
export function conversationRequests(spec: SyntheticSpec): Iterable<WorkloadRequest> {
  return spec.closedLoop === null ? openTurns(spec) : closedTurns(spec, spec.closedLoop.concurrency);
}

function* openTurns(spec: SyntheticSpec): Generator<WorkloadRequest> {
  if (spec.arrivals === null || spec.prefix.kind !== 'multi-turn') return;
  const clock = new ArrivalClock(spec.arrivals, new RandomSource(spec.seed, 'arrivals'));
  const maker = new TurnMaker(spec);
  const later = new TimeHeap<Conversation>();
  let nextStart = clock.next();
  for (;;) {
    const isStart = nextStart <= later.nextTime;
    const seconds = isStart ? nextStart : later.nextTime;
    const conversation = isStart ? maker.begin() : later.pop();
    if (isStart) nextStart = clock.next();
    yield maker.turn(conversation, seconds);
    // The answer takes time too; whoever sends the turn waits for it, this is the earliest moment.
    if (conversation.numTurnsLeft > 0) later.push(seconds + spec.prefix.thinkSeconds, conversation);
  }
}

function* closedTurns(spec: SyntheticSpec, concurrency: number): Generator<WorkloadRequest> {
  const maker = new TurnMaker(spec);
  const users: Conversation[] = [];
  for (let turn = 0; ; turn++) {
    const user = turn % concurrency;
    let conversation = users[user];
    if (conversation === undefined || conversation.numTurnsLeft <= 0) {
      conversation = maker.begin();
      users[user] = conversation;
    }
    yield maker.turn(conversation, 0);
  }
}

class TurnMaker {
  readonly #lengths: LengthPairs;
  readonly #turns: LengthSampler;
  readonly #random: RandomSource;
  readonly #numShared: number;
  readonly #maxTokens: number;
  #numConversations = 0;

  constructor(spec: SyntheticSpec) {
    const { prefix } = spec;
    if (prefix.kind !== 'multi-turn') throw new TypeError('A conversation needs a multi-turn prefix.');
    this.#lengths = new LengthPairs(spec);
    this.#turns = new LengthSampler(prefix.turns);
    this.#random = new RandomSource(spec.seed, 'turns');
    this.#numShared = prefix.numSharedTokens;
    this.#maxTokens = prefix.maxTokens;
  }

  begin(): Conversation {
    const numTurnsLeft = this.#turns.at(this.#random.uniform(), this.#random);
    return { id: this.#numConversations++, numTurnsLeft, numTokens: this.#numShared };
  }

  /** The next message of a conversation, with all before it as its prompt; ends one that would grow too long. */
  turn(conversation: Conversation, arrivalSeconds: number): WorkloadRequest {
    this.#lengths.draw();
    const numPromptTokens = conversation.numTokens + this.#lengths.promptTokens;
    const numOutputTokens = this.#lengths.outputTokens;
    conversation.numTokens = numPromptTokens + numOutputTokens;
    conversation.numTurnsLeft--;
    const typicalTurn = this.#lengths.promptTokens + numOutputTokens;
    if (conversation.numTokens + typicalTurn > this.#maxTokens) conversation.numTurnsLeft = 0;
    return {
      arrivalSeconds,
      numPromptTokens,
      numOutputTokens,
      hashIds: hashIdsOf(numPromptTokens, {
        ownerIndex: conversation.id,
        numShared: this.#numShared,
        sharedIndex: 0,
        blockTokens: SYNTHETIC_BLOCK_TOKENS,
      }),
      sessionId: conversation.id,
      priority: 0,
    };
  }
}
