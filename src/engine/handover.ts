/**
 * What of the steps' times the device did not work. A result that JavaScript sees late makes its step look longer and the next one, which
 * the device has begun in the meantime, shorter: what is too short for the device's own time counts against the steps after it, so that
 * the sum is what the device really waited.
 */
export class Handover {
  #tooShort = 0;

  /** Seconds, never negative. `startsIdle`: the device had nothing to do before the step, so what came before explains nothing of it. */
  seconds(stepSeconds: number, deviceSeconds: number, startsIdle: boolean): number {
    const seconds = stepSeconds - deviceSeconds - (startsIdle ? 0 : this.#tooShort);
    this.#tooShort = Math.max(0, -seconds);
    return Math.max(0, seconds);
  }
}
