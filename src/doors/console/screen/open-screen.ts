import type { Readable } from 'node:stream'
import type { Clock } from '../../../base/clock.ts'
import type { Environment } from '../../../base/runtime.ts'
import type { ConsoleControls } from '../screen.ts'
import { textStyleOf } from './cells.ts'
import { OrderedScreen } from './console-screen.ts'
import type { ScreenOutput } from './display.ts'

/** The operator's keyboard, if there is one. */
type ScreenInput = Readable & { readonly isTTY?: boolean; setRawMode?(isRaw: boolean): unknown }

export interface ScreenInit {
  readonly stdout: ScreenOutput
  readonly stdin: ScreenInput
  readonly env: Environment
  readonly clock: Clock
  readonly controls: ConsoleControls
  /** See `canRedraw`. */
  readonly plain: boolean
  /** True means `--force-color`. False means `--no-color`. Null means neither flag. */
  readonly colour: boolean | null
}

/** Whether the terminal can move its cursor and `--plain` is absent. */
export const canRedraw = (stdout: { readonly isTTY?: boolean }, env: Environment, plain: boolean): boolean =>
  !plain && stdout.isTTY === true && env['TERM'] !== undefined && env['TERM'] !== 'dumb'

/** Reads keys in raw mode. Ctrl-C is a key there and sends no signal. */
const readKeys = (stdin: ScreenInput, press: (typed: string) => void): (() => void) => {
  if (stdin.isTTY !== true) return () => {}
  const typed = (data: Buffer): void => press(data.toString())
  stdin.setRawMode?.(true)
  stdin.on('data', typed)
  return () => {
    stdin.off('data', typed)
    stdin.setRawMode?.(false)
    stdin.pause()
  }
}

/** Opens the screen that the terminal allows, and reads its keys until it is closed. */
export const openScreen = ({ stdout, stdin, env, clock, controls, plain, colour }: ScreenInit): OrderedScreen => {
  const look = textStyleOf({ isTerminal: stdout.isTTY === true, env, colour })
  let leave = (): void => {}
  const screen = new OrderedScreen({
    output: stdout,
    clock,
    controls,
    plain,
    look: plain ? { ...look, drawn: false } : look,
    closed: () => leave(),
  })
  leave = readKeys(stdin, (typed) => screen.press(typed))
  return screen
}
