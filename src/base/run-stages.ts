import { channel } from 'node:diagnostics_channel'
import type { Logger } from './log.ts'

/**
 * The stages of a run, in the order in which they are reached; each process reaches some. The asking
 * daemon: `asked`, `connected` (a stream is ready), `sign_asked`, `signed` (and journalled), `sent`, `exit_received`,
 * `exit_verified`, or `begun` of one that outlives its caller. The answering one: `received`, `permitted`, `journalled`,
 * `spawned`, `ended` (its processes are dead and its output is read), `exit_signed` (and journalled), `over` of one that
 * outlives its caller and may be asked about: nothing more becomes of it.
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
/** Of the other half. */
const others = channel('x0x:run-stage-of-the-other-half')

export const nowUs = (): number => Number(process.hrtime.bigint() / 1_000n)

/** Without a subscriber this is one property read. */
export const reach = (stage: Stage, requestId: string): void => {
  if (stages.hasSubscribers) stages.publish({ stage, request_id: requestId, at_us: nowUs() } satisfies StageReached)
}

/** A stage that the other half has reached. */
export const stageOfOtherProcess = (reached: StageReached): void => others.publish(reached)

/** Hears each stage of this half and, where it is told of them, of the other, until the answer is called. */
export const onStage = (listener: (reached: StageReached) => void): (() => void) => {
  const heard = (message: unknown): void => listener(message as StageReached)
  for (const one of [stages, others]) one.subscribe(heard)
  return () => {
    for (const one of [stages, others]) one.unsubscribe(heard)
  }
}

/** Stages are logged in batches at this interval: writing a line at once would take longer than most stages and distort them. */
const WRITE_MS = 100

/** From now on logs each stage of each run of this half at level debug. */
export const logStages = (log: Logger): void => {
  const waiting: object[] = []
  stages.subscribe((message) => {
    if (waiting.push(message as object) === 1)
      setTimeout(() => {
        for (const one of waiting.splice(0)) log.debug(one, 'run stage')
      }, WRITE_MS).unref()
  })
}
