import { nameText, wordsText } from '../entry-text.ts'
import { closed, fromLeft } from './direction.ts'
import { cutTo, textWidth } from './fitted-text.ts'
import { type Look, styled } from './look.ts'

export interface ScreenState {
  /** Whose output is being printed; null: nobody's. */
  readonly current: {
    readonly whoami: string
    readonly argv: readonly string[]
    readonly elapsed_ms: number
    readonly isOver: boolean
  } | null
  /** Behind it, in the order of arrival: those that run, and those that have ended. */
  readonly running: number
  readonly ended: number
  readonly paused: readonly string[]
}

const LEAST_COMMAND = 8

/** `12 s`, `4:05`, `2:04:05`: of equal width from second to second. */
const elapsedText = (ms: number): string => {
  const seconds = Math.floor(Math.max(0, ms) / 1000)
  if (seconds < 60) return `${seconds} s`
  const two = (value: number): string => String(value).padStart(2, '0')
  const minutes = Math.floor(seconds / 60)
  return minutes < 60 ? `${minutes}:${two(seconds % 60)}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)}`
}

const behindText = ({ running, ended }: ScreenState): string[] => {
  const parts = [...(running > 0 ? [`${running} running`] : []), ...(ended > 0 ? [`${ended} done`] : [])]
  return parts.length === 0 ? [] : [`behind it: ${parts.join(', ')}`]
}

const pausedText = (paused: readonly string[], short: boolean): string[] =>
  paused.length === 0 ? [] : [short ? `${paused.length} paused` : `paused: ${paused.map(nameText).join(', ')}`]

/** What runs, for how long, what waits behind it and who is paused, in one row; where it is narrow, the words of the command go first. */
export const statusText = (state: ScreenState, columns: number): string => {
  const { current } = state
  const elapsed = current === null ? [] : [current.isOver ? 'done' : elapsedText(current.elapsed_ms)]
  const variants = [
    [...elapsed, ...behindText(state), ...pausedText(state.paused, false), '? help'],
    [...elapsed, ...behindText(state), ...pausedText(state.paused, true), '? help'],
    [...elapsed, ...behindText(state), ...pausedText(state.paused, true)],
    elapsed,
  ]
  const room = (parts: readonly string[]): number => columns - 2 - textWidth(parts.map((part) => ` · ${part}`).join(''))
  const parts = variants.find((one) => room(one) >= LEAST_COMMAND) ?? []
  const what = current === null ? 'nothing runs' : `${nameText(current.whoami)}: ${wordsText(current.argv)}`
  const text = [closed(fromLeft(cutTo(what, Math.max(0, room(parts))))), ...parts].join(' · ')
  return columns < 2 ? '' : ` ${cutTo(text, columns - 2)} `
}

/** Across the whole row. */
export const barText = (text: string, columns: number, look: Look): string =>
  styled(look, 'bar', cutTo(text, columns) + ' '.repeat(Math.max(0, columns - textWidth(text))))
