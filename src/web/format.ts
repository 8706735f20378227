import type { PageRun, PageResult } from '../protocol/page-lists.ts'

/** All texts of times, durations, sizes and results on the page. */

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

export const counted = (count: number, one: string, many = `${one}s`): string => `${numberText(count)} ${count === 1 ? one : many}`

/** `12,345`, the same in every language of a browser. */
export const numberText = (value: number): string => String(value).replaceAll(/\B(?=(\d{3})+$)/g, ',')

const withRest = (count: number, unit: string, rest: number, restUnit: string): string =>
  `${count} ${unit}${rest === 0 ? '' : ` ${rest} ${restUnit}`}`

/** `12 ms`, `1.4 s`, `2 min 5 s`, `3 h 4 min`, `2 days`. */
export const durationText = (ms: number): string => {
  if (ms < SECOND) return `${Math.round(ms)} ms`
  if (ms < 10 * SECOND) return `${(ms / SECOND).toFixed(1)} s`
  if (ms < MINUTE) return `${Math.round(ms / SECOND)} s`
  if (ms < HOUR) return withRest(Math.floor(ms / MINUTE), 'min', Math.floor((ms % MINUTE) / SECOND), 's')
  if (ms < 2 * DAY) return withRest(Math.floor(ms / HOUR), 'h', Math.floor((ms % HOUR) / MINUTE), 'min')
  return counted(Math.floor(ms / DAY), 'day')
}

/** `just now`, `12 s ago`, `3 min ago`, `5 h ago`, `2 days ago`. Other texts stay as they are. */
export const agoText = (iso: string, now: number): string => {
  const age = now - Date.parse(iso)
  if (Number.isNaN(age)) return iso
  if (age < 5 * SECOND) return 'just now'
  if (age < MINUTE) return `${Math.floor(age / SECOND)} s ago`
  if (age < HOUR) return `${Math.floor(age / MINUTE)} min ago`
  if (age < 2 * DAY) return `${Math.floor(age / HOUR)} h ago`
  return `${Math.floor(age / DAY)} days ago`
}

const two = (value: number): string => String(value).padStart(2, '0')

/** `14:03:22`, or `2026-11-28 14:03:22` on another day, in the time zone of the browser. Other texts stay as they are. */
export const clockText = (iso: string, now: number): string => {
  const at = new Date(iso)
  if (Number.isNaN(at.getTime())) return iso
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`
  if (at.toDateString() === new Date(now).toDateString()) return time
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`
}

/** `512 B`, `1.5 kB`, `2.0 MB`. */
export const bytesText = (bytes: number): string => {
  if (bytes < 1_000) return `${bytes} B`
  if (bytes < 1_000_000) return `${(bytes / 1_000).toFixed(1)} kB`
  return `${(bytes / 1_000_000).toFixed(1)} MB`
}

const SIGNALS: Readonly<Record<number, string>> = {
  1: 'SIGHUP',
  2: 'SIGINT',
  6: 'SIGABRT',
  9: 'SIGKILL',
  11: 'SIGSEGV',
  13: 'SIGPIPE',
  15: 'SIGTERM',
}

export const signalText = (signal: number): string => SIGNALS[signal] ?? `signal ${signal}`

/** `exit 2`, `SIGTERM`, or null if the run has no end. */
export const endText = (code: number | null, signal: number | null): string | null =>
  signal !== null ? signalText(signal) : code === null ? null : `exit ${code}`

/** Name of a result in filters. */
export const RESULT_NAMES: Readonly<Record<PageResult, string>> = {
  running: 'running',
  waiting: 'waits for approval',
  ok: 'succeeded',
  failed: 'failed',
  denied: 'denied',
  lost: 'lost',
  unknown: 'no result',
}

/** The result of a run in words. Its colour says the same. */
export const resultText = ({ result, code, signal, reason }: Pick<PageRun, 'result' | 'code' | 'signal' | 'reason'>): string => {
  const end = endText(code, signal)
  if (result === 'failed' && end === null && reason !== null) return `did not run: ${reason}`
  if (result === 'ok' || result === 'failed') return end ?? RESULT_NAMES[result]
  if (result === 'denied') return reason === null ? 'denied' : `denied: ${reason}`
  return result === 'lost' && end !== null ? `lost, ${end}` : RESULT_NAMES[result]
}
