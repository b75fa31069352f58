// Log lines as vLLM writes them: `INFO 11-29 12:00:00 [name] text`, one line per message, whatever the text holds.
// pino filters levels and writes; this file only gives the lines their form.

import pino from 'pino';

export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent';

/** `source` names the part that speaks, e.g. `scheduler`. */
export interface Logger {
  debug(source: string, message: string): void;
  info(source: string, message: string): void;
  warn(source: string, message: string): void;
  error(source: string, message: string): void;
}

export interface LineSink {
  write(line: string): unknown;
}

const LEVEL_NAMES: Readonly<Record<number, string>> = { 20: 'DEBUG', 30: 'INFO', 40: 'WARNING', 50: 'ERROR' };

export function createLogger(options: { level: LogLevel; sink: LineSink }): Logger {
  const destination = {
    write(record: string): void {
      const { level, time, source, msg } = JSON.parse(record) as {
        level: number;
        time: number;
        source: string;
        msg: string;
      };
      options.sink.write(`${LEVEL_NAMES[level] ?? 'INFO'} ${stamp(new Date(time))} [${source}] ${oneLine(msg)}\n`);
    },
  };
  const logger = pino({ level: options.level, base: null }, destination);
  return {
    debug: (source, message) => logger.debug({ source }, message),
    info: (source, message) => logger.info({ source }, message),
    warn: (source, message) => logger.warn({ source }, message),
    error: (source, message) => logger.error({ source }, message),
  };
}

function stamp(date: Date): string {
  const two = (value: number): string => String(value).padStart(2, '0');
  return `${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Control characters of a caller's text must not forge lines or drive a terminal. */
function oneLine(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, (character) =>
    character === '\n' ? '\\n' : `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`,
  );
}
