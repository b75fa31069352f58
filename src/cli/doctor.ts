// `pagoda doctor`: reads the sources, has them diagnosed, prints the findings. Exit code 1 when something was found.

import { readFileSync, statSync } from 'node:fs';
import type { Command } from 'commander';
import { now } from '../clock.ts';
import { deriveSignals } from '../doctor/derive-signals.ts';
import { type Diagnosis, diagnose, type Resimulate } from '../doctor/diagnose.ts';
import { diagnosisJson } from '../doctor/diagnosis-json.ts';
import { diagnosisText } from '../doctor/diagnosis-text.ts';
import { NO_FACTS, type Observation, type ServerFacts, type Targets } from '../doctor/observation.ts';
import { observeLog } from '../doctor/observe-log.ts';
import { type MetricsPage, observeMetrics } from '../doctor/observe-metrics.ts';
import { observeRecords } from '../doctor/observe-record.ts';
import { resimulator } from '../doctor/resimulate.ts';
import { PagodaError } from '../errors.ts';
import type { DeploymentRequest } from '../plan/resolve-deployment.ts';
import { secondsValue } from './bench-values.ts';
import { CliExit, type CliIo } from './cli-io.ts';
import { deploymentRequestOf } from './deployment-flags.ts';
import type { DoctorFlags } from './doctor-flags.ts';
import { MetricsReader } from './doctor-metrics.ts';

const INTERRUPTED = 130;

export async function doctor(
  command: Command,
  model: string | undefined,
  flags: DoctorFlags,
  io: CliIo,
): Promise<void> {
  const request = requestOf(command, model);
  const session: Session = {
    flags,
    io,
    request: request?.gpu === undefined || request.gpu === null ? null : request,
    facts: factsOf(deploymentOf(command, model)),
    targets: {
      ttftSeconds: flags.ttft === undefined ? null : secondsValue('ttft', flags.ttft),
      tpotSeconds: flags.tpot === undefined ? null : secondsValue('tpot', flags.tpot),
    },
  };
  checkSources(flags);
  const diagnoses = flags.url === undefined ? [] : await diagnoseServer(session);
  for (const observation of fromFiles(session)) diagnoses.push(judge(observation, session));
  if (flags.watch !== true) print(diagnoses, session);
  if (diagnoses.some((diagnosis) => diagnosis.findings.length > 0)) throw new CliExit(1);
}

interface Session {
  readonly flags: DoctorFlags;
  readonly io: CliIo;
  /** Null: nothing can be simulated. */
  readonly request: DeploymentRequest | null;
  readonly facts: ServerFacts;
  readonly targets: Targets;
}

function checkSources({ url, metrics, log, result, watch }: DoctorFlags): void {
  const num = [url, metrics, log, result].filter((source) => source !== undefined).length;
  if (num === 0) {
    throw new PagodaError(
      'bad_config',
      'A source is missing: --url http://127.0.0.1:8000, --metrics FILE, --log FILE or --result FILE.',
      { param: '--url' },
    );
  }
  if (watch === true && (url === undefined || num > 1)) {
    throw new PagodaError('bad_config', '--watch needs --url and no other source.', { param: '--watch' });
  }
}

const hasModel = (command: Command, model: string | undefined): boolean =>
  model !== undefined || typeof command.getOptionValue('model') === 'string';

function requestOf(command: Command, model: string | undefined): DeploymentRequest | null {
  return hasModel(command, model) ? deploymentRequestOf(command, model) : null;
}

/** The flags also count without a model: they say how the server was started. */
function deploymentOf(command: Command, model: string | undefined): DeploymentRequest {
  return deploymentRequestOf(command, hasModel(command, model) ? model : 'unknown');
}

function factsOf(request: DeploymentRequest): ServerFacts {
  const { maxModelLen } = request;
  return {
    ...NO_FACTS,
    maxNumSeqs: request.maxNumSeqs ?? null,
    maxNumBatchedTokens: request.maxNumBatchedTokens ?? null,
    maxModelLen: typeof maxModelLen === 'number' ? maxModelLen : null,
    gpuMemoryUtilization: request.gpuMemoryUtilization ?? null,
    kvCacheDtype: request.kvCacheDtype ?? null,
    tensorParallelSize: request.tensorParallelSize ?? null,
    enforceEager: request.enforceEager ?? null,
    watermark: request.watermark ?? null,
  };
}

function judge(observation: Observation, { request, targets }: Session): Diagnosis {
  const resimulate: Resimulate | null =
    request === null ? null : resimulator(request, deriveSignals(observation, targets));
  return diagnose(observation, { targets, ...(resimulate === null ? {} : { resimulate }) });
}

function fromFiles({ flags, facts }: Session): Observation[] {
  const pages = (flags.metrics ?? []).map((path): MetricsPage & { path: string } => ({
    path,
    // Saved when they were read.
    seconds: statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0,
    text: readText('metrics', path),
  }));
  return [
    ...(pages.length === 0
      ? []
      : [
          observeMetrics(
            `--metrics ${pages.map((page) => page.path).join(', ')}`,
            pages.map(({ seconds, text }) => ({ seconds: seconds / 1000, text })),
            facts,
          ),
        ]),
    ...(flags.log ?? []).map((path) => observeLog(path, readText('log', path), facts)),
    ...(flags.result === undefined
      ? []
      : observeRecords(
          flags.result.map((path) => ({ path, text: readText('result', path) })),
          facts,
        )),
  ];
}

function readText(option: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const reason = code === 'ENOENT' ? 'there is no such file' : code === 'EISDIR' ? 'it is a folder' : String(error);
    throw new PagodaError('bad_config', `--${option} ${path} cannot be read: ${reason}.`, { param: `--${option}` });
  }
}

/** One window, or with --watch one after the other; then the last of them is returned. */
async function diagnoseServer(session: Session): Promise<Diagnosis[]> {
  const { flags, io } = session;
  const stop = new AbortController();
  const forget = io.onInterrupt(() => stop.abort());
  const reader = new MetricsReader(flags, io.env);
  try {
    let last: Diagnosis | null = null;
    for (;;) {
      const pages = await reader.window(stop.signal);
      if (stop.signal.aborted && (flags.watch === true || pages.length < 2)) break;
      const diagnosis = judge(observeMetrics(reader.source, pages, session.facts), session);
      if (flags.watch !== true) return [diagnosis];
      report(diagnosis, last, session);
      last = diagnosis;
    }
    if (flags.watch !== true) throw new CliExit(INTERRUPTED);
    return last === null ? [] : [last];
  } finally {
    forget();
  }
}

/** While watching: the whole text when the findings changed, else a line. */
function report(diagnosis: Diagnosis, before: Diagnosis | null, { flags, io }: Session): void {
  if (flags.json === true) {
    io.stdout.write(`${JSON.stringify(diagnosisJson(diagnosis))}\n`);
    return;
  }
  const rules = (each: Diagnosis): string => each.findings.map((finding) => finding.rule).join(', ');
  const time = new Date(now() * 1000).toISOString().slice(11, 19);
  if (before !== null && rules(before) === rules(diagnosis)) {
    io.stdout.write(`${time}  ${rules(diagnosis) === '' ? 'nothing found' : `still ${rules(diagnosis)}`}\n`);
    return;
  }
  io.stdout.write(`${time}\n${diagnosisText(diagnosis)}\n`);
}

function print(diagnoses: readonly Diagnosis[], { flags, io }: Session): void {
  if (flags.json === true) {
    const all = diagnoses.map(diagnosisJson);
    io.stdout.write(`${JSON.stringify(all.length === 1 ? all[0] : all, null, 2)}\n`);
    return;
  }
  io.stdout.write(diagnoses.map(diagnosisText).join('\n'));
}
