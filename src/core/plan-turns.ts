// Two plans that take turns: while one is in flight, the other is made. Results are taken in the order of the plans.

import { PagodaError } from '../errors.ts';
import type { StepPlan } from './step.ts';
import { PlanBuffer } from './step-plan.ts';

export class PlanTurns {
  readonly plans: readonly PlanBuffer[] = [new PlanBuffer(), new PlanBuffer()];
  #numPlans = 0;

  /** The one that is free, begun. Throws PagodaError `internal` when both are in flight. */
  begin(maxTokens: number, maxPrefillTokens: number): PlanBuffer {
    const plan = this.plans[0]!.isInFlight ? this.plans[1]! : this.plans[0]!;
    if (plan.isInFlight)
      throw new PagodaError('internal', 'Two steps are in flight: update one before another is scheduled.');
    plan.begin(this.#numPlans++, maxTokens, maxPrefillTokens);
    return plan;
  }

  /** Ends the flight of the plan whose turn it is; an empty one is nobody's turn. Throws PagodaError `internal` for another. */
  take(plan: StepPlan): PlanBuffer {
    const own = this.plans.find((each) => each === plan);
    if (own === undefined) throw new PagodaError('internal', 'The plan was not made by this scheduler.');
    const isEarlier = this.plans.some((each) => each.isInFlight && each.stepId < own.stepId);
    if (isEarlier || (!own.isInFlight && own.numScheduled > 0)) {
      throw new PagodaError('internal', `Step ${own.stepId} is updated out of turn or twice.`);
    }
    own.isInFlight = false;
    return own;
  }
}
