import type { Readable, Writable } from 'node:stream'

import type { TerminalSize } from '../policy/permit.ts'
import type { Containment } from '../protocol/reasons.ts'
import type { Cell } from './cell.ts'
import type { ProcessSignal } from './signals.ts'

/** How a process ended: a status, or the number of the signal that ended it. */
export interface ProcessExit {
  readonly code: number | null
  readonly signal: number | null
}

/** A started program: the leader of a session and group of its own, or what stands before it. */
export interface Child {
  readonly pid: number
  /** What its processes live in. */
  readonly cell: Pick<Cell, 'containment' | 'mayLeak' | 'leaderLives' | 'refusesSignals'>
  /** Null: it reads /dev/null. */
  readonly stdin: Writable | null
  readonly stdout: Readable
  readonly stderr: Readable
  /** Signals everything in its cell; does nothing once the process was reaped. */
  signal(signal: ProcessSignal): void
  /** Null: it has no terminal. */
  readonly resize: ((size: TerminalSize) => void) | null
  /** Settles when the process was reaped and the rest of its cell killed. */
  readonly exited: Promise<ProcessExit>
}

/** A failure to start is a value: the requester is denied `spawn_failed`, `detail` stays here. */
export interface SpawnFailure {
  readonly kind: 'spawn_failed'
  readonly detail: string
  /** What ran for a moment all the same, until it was killed; null: nothing. */
  readonly ran: { readonly pid: number; readonly containment: Containment } | null
}

export type SpawnResult = { readonly kind: 'spawned'; readonly child: Child } | SpawnFailure
