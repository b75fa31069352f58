// What a command may touch of the process; tests bring their own.

export interface OutputStream {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

export interface CliIo {
  /** Arguments without node and script. */
  readonly argv: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly stdin: AsyncIterable<Uint8Array | string> & { readonly isTTY?: boolean };
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  /** Calls back at each interrupt (Ctrl-C) or request to terminate; returns how to stop listening. */
  onInterrupt(listener: (signal: 'SIGINT' | 'SIGTERM') => void): () => void;
}

/** Ends a command with an exit code and nothing more to say. */
export class CliExit extends Error {
  readonly code: number;

  constructor(code: number) {
    super(`exit ${code}`);
    this.code = code;
  }
}
