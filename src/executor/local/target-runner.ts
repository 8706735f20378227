import type { ReachedTarget, TerminalSize } from '../../executor-api/local.ts'
import type { RulesJson } from '../../protocol/api/rules.ts'
import type { RunPart, TerminalPart } from '../../protocol/api/run-events.ts'
import type { RequestId } from '../../protocol/ids.ts'
import type { TargetFiles } from './target-files.ts'

/** A command for another agent. */
export interface TargetRequest {
  /** A name, an ID or its prefix, as `x0x exec` takes it. */
  readonly target: string
  readonly argv: readonly string[]
  /** Null means /dev/null. */
  readonly stdin: Uint8Array | null
  readonly timeout_ms: number
  readonly request_id: RequestId
  readonly detach: boolean
}

export type TargetTerminalRequest = Omit<TargetRequest, 'stdin' | 'detach'> & { readonly terminal: TerminalSize }

/** A command on a terminal of another agent. */
export interface TargetTerminal {
  /** The parts in order, as `TargetRunner.run` yields them. The command is requested when they are first read. */
  readonly parts: AsyncIterable<TerminalPart>
  /** Types bytes. Resolves when more may be typed, or when the run is over. */
  type(data: Uint8Array): Promise<void>
  /** Types the end of file. */
  endOfFile(): void
  resize(size: TerminalSize): void
}

/** Runs commands of the mesh through the daemon of this machine. */
export interface TargetRunner {
  /** Yields the parts in order. The last is an `exit` or an `error`. Aborting the signal abandons the run. Throws an `AppError`. */
  run(request: TargetRequest, signal: AbortSignal): AsyncIterable<RunPart>
  /** As `run`, on a terminal. */
  openTerminal(request: TargetTerminalRequest, signal: AbortSignal): TargetTerminal
  /** Ends the run. Its `exit` still comes. */
  cancel(request: Pick<TargetRequest, 'request_id' | 'detach'>): Promise<void>
  /** Links with the target without running anything. Throws why it is not reached. */
  reach(target: string, signal: AbortSignal): Promise<ReachedTarget>
  /** Asks the target which commands it allows. Throws why it does not answer. */
  rules(target: string, signal: AbortSignal): Promise<RulesJson>
  /** Files of the target. */
  files(target: string): TargetFiles
  /** Resolves words to contacts without asking them. Throws what is wrong with the words. */
  select(words: readonly string[], signal: AbortSignal): Promise<readonly SelectedTarget[]>
}

/** `host` is the contact's name, else the ID. */
export interface SelectedTarget {
  readonly host: string
  readonly agent_id: string
}
