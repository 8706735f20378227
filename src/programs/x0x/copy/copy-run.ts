import { counted } from '../../../base/format.ts'
import { shownLine, visibleJson } from '../../../base/visible-text.ts'
import type { CliContext } from '../context.ts'
import { printProblem } from '../failure.ts'
import { EXIT_NOT_RUN } from '../outcome.ts'
import { printLine, printNotice } from '../print.ts'
import { type CopiedFile, type CopyFailure, type CopyJob, type CopyPlan, copyJobs } from './copy-job.ts'
import type { CopyProgress } from './copy-progress.ts'
import { type FailureKind, FileFailures, failureKindOf } from './file-failure.ts'

const RESUME_HINT = 'To resume, run the same command again'

const jsonOf = ({ bytes, sha256 }: CopiedFile): object => ({ bytes, ...(sha256 !== null && { sha256 }) })

/** Copies the files of a plan, reports each, and knows the exit status. */
export class CopyRun {
  readonly #context: CliContext
  readonly #progress: CopyProgress
  readonly #reports: FileFailures
  readonly #failures = new Set<FailureKind>()
  readonly #kept: string[] = []
  #files = 0
  #copied = 0

  constructor(components: { readonly context: CliContext; readonly progress: CopyProgress }, init: { readonly host: string }) {
    this.#context = components.context
    this.#progress = components.progress
    this.#reports = new FileFailures(components, init)
  }

  /** Stops at the first failure of the connection, and when the signal aborts. */
  async copy({ jobs, failures, skipped }: CopyPlan, signal: AbortSignal): Promise<void> {
    this.#files = jobs.length + failures.length
    for (const line of skipped) await printNotice(this.#context, shownLine(line))
    for (const failure of failures) await this.report(failure)
    const bytes = jobs.reduce<number | null>((sum, { size }) => (sum === null || size === null ? null : sum + size), 0)
    this.#progress.start({ files: jobs.length, bytes })
    await copyJobs(jobs, {
      copyOne: async (job) => this.#copyOne(job, signal),
      isOver: () => signal.aborted || this.#failures.has('not_connected'),
    })
    this.#progress.end()
  }

  /** Reports a file that was not copied. */
  async report({ source, destination, error }: CopyFailure): Promise<void> {
    this.#failures.add(failureKindOf(error))
    this.#progress.clear()
    await this.#reports.print([source, destination], error, { source, destination })
  }

  /** Prints the last lines, and returns the exit status. */
  async finish(): Promise<number> {
    const lines = this.#keptLines()
    if (lines.length > 0) await printProblem(this.#context, lines)
    if (this.#failures.size === 0) {
      const summary = this.#progress.summary()
      if (summary !== null) await printNotice(this.#context, summary)
      return 0
    }
    if (this.#failures.has('not_connected')) return EXIT_NOT_RUN
    return this.#failures.has('file') || this.#copied > 0 ? 1 : EXIT_NOT_RUN
  }

  /** Prints the last lines of a copy that a signal ended. */
  async interrupted(): Promise<void> {
    this.#progress.end()
    const what = this.#files === 0 ? 'interrupted' : `interrupted: ${this.#copied} of ${counted(this.#files, 'file')} copied`
    const kept = this.#keptLines()
    await printProblem(this.#context, [what, ...(kept.length > 0 || this.#files === 0 ? kept : [RESUME_HINT])])
  }

  #keptLines(): string[] {
    return this.#kept.length === 0 ? [] : [...this.#kept, RESUME_HINT]
  }

  async #copyOne(job: CopyJob, signal: AbortSignal): Promise<void> {
    const { source, destination } = job
    try {
      const copied = await job.run(this.#progress, signal)
      this.#copied += 1
      this.#progress.fileEnded()
      if (this.#context.json)
        await printLine(this.#context, visibleJson(JSON.stringify({ ok: true, source, destination, ...jsonOf(copied) })))
    } catch (error) {
      if (job.kept !== null) this.#kept.push(job.kept)
      if (!signal.aborted) await this.report({ source, destination, error })
    }
  }
}
