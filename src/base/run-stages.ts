import { channel } from 'node:diagnostics_channel'
import type { Logger } from './log.ts'

/**
 * The stages of a run, in order; each process reaches some of them. Requester: `asked`, `connected` (a stream is ready), `sign_asked`,
 * `signed` (and journalled), `sent`, `exit_received`, `exit_verified`; `begun` for a detached run. Target: `received`, `permitted`,
 * `journalled`, `spawned`, `ended` (its processes are dead and its output is read), `exit_signed` (and journalled); `over` for a detached
 * run whose state is final.
 */
export const STAGES = [
  'asked',
  'connected',
  'sign_asked',
  'signed',
  'sent',
  'received',
  'permitted',
  'journalled',
  'spawned',
  'ended',
  'exit_signed',
  'over',
  'begun',
  'exit_received',
  'exit_verified',
] as const
export type Stage = (typeof STAGES)[number]

/** `at_us` is CLOCK_MONOTONIC, which all processes of a machine share. */
export interface StageReached {
  readonly stage: Stage
  readonly request_id: string
  readonly at_us: number
}

const stages = channel('x0x:run-stage')
/** Stages of the other process of the daemon. */
const others = channel('x0x:run-stage-of-the-other-half')

export const nowUs = (): number => Number(process.hrtime.bigint() / 1_000n)

/** Costs one property read while nothing subscribes. */
export const reach = (stage: Stage, requestId: string): void => {
  if (stages.hasSubscribers) stages.publish({ stage, request_id: requestId, at_us: nowUs() } satisfies StageReached)
}

export const stageOfOtherProcess = (reached: StageReached): void => others.publish(reached)

/** Subscribes to the stages of this process and to those that the other one reports. Returns the function that unsubscribes. */
export const onStage = (listener: (reached: StageReached) => void): (() => void) => {
  const heard = (message: unknown): void => listener(message as StageReached)
  for (const one of [stages, others]) one.subscribe(heard)
  return () => {
    for (const one of [stages, others]) one.unsubscribe(heard)
  }
}

/** Stages are logged in batches at this interval: writing a line at once would take longer than most stages and distort them. */
const WRITE_MS = 100

/** Runs in one line. With 5 stages each it stays below the 8 KiB of a relayed line. */
const RUNS_PER_LINE = 32

/**
 * Logs the stages of all runs of this process at level debug from now on. One line holds those of an interval, as `{REQUEST ID: {STAGE:
 * MICROSECONDS}}`, because the log of the network process is limited in lines per second.
 */
export const logStages = (log: Logger): void => {
  const waiting: StageReached[] = []
  const write = (): void => {
    const runs = [...Map.groupBy(waiting.splice(0), ({ request_id }) => request_id)].map(
      ([id, reached]) => [id, Object.fromEntries(reached.map(({ stage, at_us }) => [stage, at_us]))] as const,
    )
    for (let at = 0; at < runs.length; at += RUNS_PER_LINE)
      log.debug({ stages: Object.fromEntries(runs.slice(at, at + RUNS_PER_LINE)) }, 'run stages')
  }
  stages.subscribe((message) => {
    if (waiting.push(message as StageReached) === 1) setTimeout(write, WRITE_MS).unref()
  })
}
