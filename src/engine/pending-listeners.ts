// Listeners for an engine that starts before those who listen are there: calls wait, in their order, until `bind`.

import type { EngineInfo, EngineListeners } from './engine-client.ts';

export class PendingListeners implements EngineListeners {
  #target: EngineListeners | null = null;
  #waiting: Array<(target: EngineListeners) => void> = [];

  /** Hands over what has happened so far; from now on calls go straight through. */
  bind(target: EngineListeners): void {
    this.#target = target;
    for (const call of this.#waiting) call(target);
    this.#waiting = [];
  }

  onStep(...args: Parameters<NonNullable<EngineListeners['onStep']>>): void {
    this.#call((target) => target.onStep?.(...args));
  }

  onLog(...args: Parameters<NonNullable<EngineListeners['onLog']>>): void {
    this.#call((target) => target.onLog?.(...args));
  }

  onDown(...args: Parameters<NonNullable<EngineListeners['onDown']>>): void {
    this.#call((target) => target.onDown?.(...args));
  }

  onReady(info: EngineInfo): void {
    this.#call((target) => target.onReady?.(info));
  }

  onLoadProgress(...args: Parameters<NonNullable<EngineListeners['onLoadProgress']>>): void {
    this.#call((target) => target.onLoadProgress?.(...args));
  }

  #call(call: (target: EngineListeners) => void): void {
    if (this.#target === null) this.#waiting.push(call);
    else call(this.#target);
  }
}
