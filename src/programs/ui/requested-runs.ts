import { AppError, errorCodeOf } from '../../base/errors.ts'
import type { LocalApi } from '../../clients/daemon.ts'
import { operate } from '../../clients/operator.ts'
import { asAttachedEvent } from '../../protocol/api/attached-events.ts'
import { MAX_RUN_LINE, lineTooLong } from '../../protocol/api/run-events.ts'
import { OutputTail } from '../../protocol/events/run-reporter.ts'
import { MAX_EVENT_TAIL } from '../../protocol/limits/events.ts'
import { PAGE_DAEMON_MS } from '../../protocol/limits/page.ts'
import { linesOf } from '../../protocol/lines.ts'
import type { PageDetachedOutput, PageRun } from '../../protocol/page-lists.ts'
import { fromBase64 } from '../../protocol/text.ts'
import type { DaemonLists } from './daemon-lists.ts'

interface RequestedRunDeps {
  readonly api: LocalApi
  readonly lists: Pick<DaemonLists, 'detached'>
}

/** Time for the end of a detached run to be reported. Its program has 5 seconds after SIGTERM. */
const END_MS = 8_000

/** The list of detached runs has states as last reported, so the daemon waits for the end. */
const learnEnd = async ({ api, lists }: RequestedRunDeps, request_id: string): Promise<void> => {
  await api.json({ method: 'POST', path: '/runs/wait', body: { request_ids: [request_id], timeout_ms: END_MS } }).catch(() => undefined)
  lists.detached.forget()
}

/**
 * Asks for the end of a run that this agent requested. An operator proves it, so that the audit log has it; the end of a detached run is in
 * the request log instead. Throws `unknown_run`, `conflict` for other runs, and `operator_proof_required`.
 */
export const stopRun = async (deps: RequestedRunDeps, run: PageRun | null, signal: AbortSignal): Promise<object> => {
  if (run === null) throw new AppError('unknown_run', 'no log of this machine has that run any more')
  const { side, result, detached, request_id } = run
  if (side !== 'mine') throw new AppError('conflict', 'another agent or a program requested this run: use x0x exec cancel')
  if (result !== 'running' && result !== 'waiting') throw new AppError('conflict', 'this run has ended')
  if (!detached) return operate(deps, '/exec/cancel', { request_id })
  await deps.api.json({ method: 'POST', path: '/runs/cancel', body: { request_id }, signal })
  void learnEnd(deps, request_id)
  return {}
}

/** Bytes that are read of the end. The longest kept end has fewer, so that a cut is noticed. */
const READ_BYTES = 4 * MAX_EVENT_TAIL

interface StoredOutput {
  readonly tail: OutputTail
  readonly bytes_kept: number
  readonly bytes_dropped: number
}

/** Reads the stored output from a byte on. From 0 it stops before output that is longer than what is shown. Throws the errors of the daemon. */
const readFrom = async (
  api: LocalApi,
  { id, from }: { readonly id: string; readonly from: number },
  signal: AbortSignal,
): Promise<StoredOutput> => {
  const path = `/runs/${encodeURIComponent(id)}/output?from=${from}&follow=false`
  const body = await api.open({ method: 'GET', path, headers: { accept: 'application/x-ndjson' }, signal })
  const tail = new OutputTail()
  let sizes = { bytes_kept: 0, bytes_dropped: 0 }
  for await (const line of linesOf(body, MAX_RUN_LINE, lineTooLong)) {
    const event = asAttachedEvent(JSON.parse(line.toString('utf8')))
    if (event.type === 'error') throw new AppError(errorCodeOf(event.error), event.message)
    if (event.type === 'stdout' || event.type === 'stderr') tail.push(fromBase64(event.data_b64) ?? new Uint8Array(0))
    if (event.type === 'state') sizes = { bytes_kept: event.bytes_kept, bytes_dropped: event.bytes_dropped }
    if (from === 0 && sizes.bytes_kept > READ_BYTES) break
  }
  return { tail, ...sizes }
}

/**
 * The end of the output that the host of a detached run stores. Each call asks the host, which the request log records, so a page calls it
 * for a click only. Throws `conflict` for another run, and the errors of the daemon.
 */
export const detachedOutput = async (
  { api, lists }: RequestedRunDeps,
  run: PageRun | null,
  left: AbortSignal,
): Promise<PageDetachedOutput> => {
  if (run?.side !== 'mine' || !run.detached) throw new AppError('conflict', 'this is not a detached run of this agent')
  const id = run.request_id
  const signal = AbortSignal.any([left, AbortSignal.timeout(PAGE_DAEMON_MS)])
  const whole = await readFrom(api, { id, from: 0 }, signal)
  const { tail, bytes_dropped } =
    whole.bytes_kept > READ_BYTES ? await readFrom(api, { id, from: whole.bytes_kept - READ_BYTES }, signal) : whole
  // The host has told the present state of the run as well.
  lists.detached.forget()
  return { ...tail.take(), bytes_dropped }
}
