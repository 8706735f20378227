import type { Clock } from '../base/clock.ts'
import type { ExecFrame } from '../protocol/exec.ts'
import type { RequestId } from '../protocol/ids.ts'
import type { RunTransport } from './transport.ts'

/** Opens another transport to the same agent and machine. `silent`: the lost one was not closed, but nothing came on it any more. */
export type Reopen = (silent: boolean, signal: AbortSignal) => Promise<RunTransport>

export interface ResumableTransportComponents {
  readonly transport: RunTransport
  readonly clock: Clock
  /** Null for a run on this daemon's own executor: its transport is lost only with the executor. */
  readonly reopen: Reopen | null
}

export interface ResumableTransportInit {
  readonly requestId: RequestId
  /** Sequence numbers of the frames of output that are expected next. */
  position(): { readonly stdout: number; readonly stderr: number }
  onFrame(frame: ExecFrame): void
  /** The run was resumed on another transport; the other side has stdin below this number. */
  onResumed(stdin: number): void
  /** The other side has never seen the Request, and has made its nonce void. Answers the same Request, signed for this transport; throws where it is not to be sent again. */
  signAgain(transport: RunTransport): Promise<ExecFrame>
  /** The Request of `signAgain` was sent: nothing else of the run was sent on this transport. */
  onSentAgain(): void
  /** Once: the run cannot be followed any more. `foreign`: because of what the other side sent. */
  onLost(message: string, foreign: boolean): void
}
