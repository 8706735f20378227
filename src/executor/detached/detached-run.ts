import { errorText } from '../../base/errors.ts'
import type { RunningProcess } from '../../process/running-process.ts'
import { execFrame, type ExecFrame } from '../../protocol/exec.ts'
import type { RequestId } from '../../protocol/ids.ts'
import type { RunCaps } from '../../policy/permit.ts'
import type { RunState } from '../../protocol/reasons.ts'
import type { RunStory } from '../../protocol/run-story.ts'
import { Execution, reportTo, starterOf, type EndCause, type RunReport } from '../runs/execution.ts'
import { warningFrame } from '../runs/run-frames.ts'
import type { Warning } from '../runs/warning-text.ts'
import { RunWait, type Admitted, type Awaited } from '../runs/run-wait.ts'
import type { RunComponents } from '../runs/run.ts'
import type { KeptRun } from './kept-run.ts'

export interface DetachedRunInit {
  readonly admission: Admitted | Awaited
  readonly kept: KeptRun
  readonly story: RunStory | null
  /** Answers the Exit for a run whose output cannot be kept. */
  unkept(detail: string): Promise<Uint8Array>
}

/** A run that nobody has to be there for: it goes on to its end, whatever becomes of who asked. */
export class DetachedRun {
  readonly #components: Omit<RunComponents, 'total'>
  readonly #init: DetachedRunInit
  readonly #wait: RunWait | null
  #execution: Execution<RunningProcess, Uint8Array> | null = null
  #report: RunReport<RunningProcess, Uint8Array> | null = null
  #cause: EndCause | null = null
  #killed = false
  /** Its program began: it is kept, however it ends. */
  #ran = false
  /** Its files are there. */
  #isKept = false
  /** All bytes that the program wrote, once that is known. */
  #total = 0

  constructor(components: Omit<RunComponents, 'total'>, init: DetachedRunInit) {
    this.#components = components
    this.#init = init
    const { admission, kept } = init
    const told = (): void => kept.waits()
    this.#wait =
      'permit' in admission ? null : new RunWait({ clock: components.clock }, { awaited: admission, requestId: this.requestId, send: told })
  }

  get requestId(): RequestId {
    return this.#init.kept.record.request_id
  }

  get state(): RunState {
    if (this.#wait !== null && this.#execution === null) return 'waiting_for_approval'
    return this.#cause === null ? 'running' : 'ending'
  }

  /** Runs to the end, and never rejects. Answers the Exit of what never ran and was not waited for. */
  async execute(): Promise<Uint8Array | null> {
    const { kept, story } = this.#init
    const { log } = this.#components
    try {
      const exit = await this.#toTheEnd()
      if (!this.#isKept || (!this.#ran && this.#wait === null)) return exit
      await kept.finish(exit, this.#total)
    } catch (error) {
      log.error({ request_id: this.requestId, error: errorText(error) }, 'a detached run failed inside')
      story?.lost()
      await kept.finish(null, this.#total)
    }
    return null
  }

  /** Ends the program, then warns. Only the first cause counts. */
  end(cause: EndCause): void {
    if (this.#cause !== null) return
    this.#cause = cause
    if (this.#execution !== null) this.#execution.end(cause)
    else if (this.#wait?.withdraw(cause) === true) this.#warn({ kind: cause, amount: null })
  }

  /** SIGKILL. */
  kill(): void {
    this.#killed = true
    this.#execution?.kill()
  }

  async #toTheEnd(): Promise<Uint8Array> {
    const { admission, kept, story } = this.#init
    try {
      await kept.open({ onRoom: () => this.#execution?.resume(), onFailed: () => this.#lost() })
      this.#isKept = true
    } catch (error) {
      if ('permit' in admission) return this.#unkept(admission, `its output cannot be kept: ${errorText(error)}`)
      this.#wait?.withdraw('cancelled')
    }
    const settled = 'permit' in admission ? admission : await this.#wait!.settle()
    if ('exit' in settled) {
      story?.denied(settled.reason)
      return settled.exit
    }
    // Of one that waited the record says until now that it never began.
    if (this.#wait !== null && !(await kept.allowed())) return this.#unkept(settled, 'its record cannot be written')
    this.#execution = this.#executionOf(settled)
    if (this.#cause !== null) this.#execution.end(this.#cause)
    if (this.#killed) this.#execution.kill()
    return this.#execution.run()
  }

  async #unkept({ slot }: Admitted, detail: string): Promise<Uint8Array> {
    const { story, unkept } = this.#init
    slot.release()
    story?.denied('spawn_failed')
    return unkept(detail)
  }

  #executionOf({ permit, report, slot }: Admitted): Execution<RunningProcess, Uint8Array> {
    const { kept, story } = this.#init
    this.#report = reportTo(story, {
      ...report,
      ended: async (facts) => {
        this.#total = facts.stdout_bytes_total + facts.stderr_bytes_total
        return report.ended(facts)
      },
    })
    return new Execution({
      start: starterOf(this.#components, permit, { stdin: false }),
      starting: null,
      stdin: null,
      report: this.#report,
      output: {
        push: (stream, data) => kept.push(stream, data),
        started: ({ pid }) => this.#began(pid, permit.caps.timeout_ms),
        warning: (warning) => this.#warn(warning, permit.caps),
      },
      slot,
      timeoutClamped: permit.caps.timeout_clamped,
    })
  }

  #began(pid: number, lifetimeMs: number): void {
    this.#ran = true
    this.#note({ type: 'started', request_id: this.requestId, pid })
    this.#init.kept.runs(lifetimeMs)
  }

  /** The disk has refused some of its output: the hashes of its Exit will not fit what is kept. */
  #lost(): void {
    const warning = { kind: 'output_lost', amount: null } as const
    this.#report?.warned(warning)
    this.#warn(warning)
  }

  #warn(warning: Warning, caps: RunCaps | null = null): void {
    this.#note(warningFrame(this.requestId, warning, caps))
  }

  #note(frame: ExecFrame): void {
    this.#init.kept.note(execFrame.encode(frame))
  }
}
