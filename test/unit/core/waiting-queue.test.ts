import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Sequence } from '../../../src/core/sequence.ts';
import { isBeforeUnder, WaitingQueue } from '../../../src/core/waiting-queue.ts';
import { makeRequest } from './scheduler-fixtures.ts';

function makeSequence(order: number, priority = 0, arrivalTime = 0): Sequence {
  const request = { ...makeRequest(`request-${order}`, [1], { priority }), arrivalTime };
  return new Sequence(request, { order, maxTotalTokens: 10, numGroups: 1 });
}

describe('WaitingQueue', () => {
  it('orders by arrival under fcfs and by priority, time, arrival under priority', () => {
    const sequences = [makeSequence(0, 5, 0), makeSequence(1, 1, 9), makeSequence(2, 1, 3), makeSequence(3, 1, 3)];
    const drain = (policy: 'fcfs' | 'priority') => {
      const queue = new WaitingQueue(isBeforeUnder(policy));
      for (const sequence of [...sequences].reverse()) queue.push(sequence);
      const orders: number[] = [];
      for (let head = queue.peek(); head !== null; head = queue.peek()) {
        orders.push(head.order);
        queue.remove(head);
      }
      return orders;
    };
    expect(drain('fcfs')).toEqual([0, 1, 2, 3]);
    expect(drain('priority')).toEqual([2, 3, 1, 0]);
  });

  it('agrees with a sorted list on random pushes and removals', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.integer({ min: 0, max: 3 }), fc.nat()), { maxLength: 100 }), (operations) => {
        const isBefore = isBeforeUnder('priority');
        const queue = new WaitingQueue(isBefore);
        const list: Sequence[] = [];
        operations.forEach(([priority, choice], order) => {
          if (choice % 3 > 0) {
            const sequence = makeSequence(order, priority);
            queue.push(sequence);
            list.push(sequence);
          } else if (list.length > 0) {
            const [removed] = list.splice(choice % list.length, 1);
            queue.remove(removed!);
            expect(removed!.waitingIndex).toBe(-1);
          }
          list.sort((a, b) => (isBefore(a, b) ? -1 : 1));
          expect(queue.size).toBe(list.length);
          expect(queue.peek()).toBe(list[0] ?? null);
        });
      }),
      { numRuns: 200 },
    );
  });
});
