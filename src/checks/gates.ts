// What every check command shares: named gates, a progress line per gate, `--json`, the closing line and the exit code.

export interface Gate {
  readonly name: string;
  readonly value: number | string | boolean;
  /** What the value is held against, as text: `<= 0.00255`. */
  readonly bound: string;
  readonly ok: boolean;
}

export class Gates {
  readonly #gates: Gate[] = [];
  readonly #asJson = process.argv.includes('--json');

  /** Facts that belong to the report but gate nothing. */
  note(text: string): void {
    if (!this.#asJson) process.stdout.write(`     ${text}\n`);
  }

  check(name: string, value: Gate['value'], bound: string, ok: boolean): void {
    this.#gates.push({ name, value, bound, ok });
    if (!this.#asJson) process.stdout.write(`${ok ? 'ok  ' : 'FAIL'} ${name}: ${value} (${bound})\n`);
  }

  atMost(name: string, value: number, bound: number): void {
    this.check(name, value, `<= ${bound}`, value <= bound);
  }

  atLeast(name: string, value: number, bound: number): void {
    this.check(name, value, `>= ${bound}`, value >= bound);
  }

  equal(name: string, value: number | string, wanted: number | string): void {
    this.check(name, value, `= ${wanted}`, value === wanted);
  }

  /** Prints the summary and sets the exit code. */
  finish(): void {
    const failed = this.#gates.filter((gate) => !gate.ok).length;
    if (this.#asJson) process.stdout.write(`${JSON.stringify({ gates: this.#gates })}\n`);
    process.stdout.write(`${this.#gates.length - failed} passed, ${failed} failed\n`);
    if (failed > 0 || this.#gates.length === 0) process.exitCode = 1;
  }
}
