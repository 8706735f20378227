import { AppError, errnoOf, errorText } from '../../../base/errors.ts'

/** Receives the progress of one file. */
export interface CopyMeter {
  /** Bytes that an earlier copy had moved. */
  skipped(bytes: number): void
  moved(bytes: number): void
}

export interface CopiedFile {
  readonly bytes: number
  /** Null if it was not computed on this machine. */
  readonly sha256: string | null
}

/** One file to copy. */
export interface CopyJob {
  /** As the user would type it. */
  readonly source: string
  readonly destination: string
  /** Null if it is not known before. */
  readonly size: number | null
  /** What an unfinished copy has left for the next one, or null. */
  readonly kept: string | null
  run(meter: CopyMeter, signal: AbortSignal): Promise<CopiedFile>
}

/** A file or directory that cannot be copied. */
export interface CopyFailure {
  readonly source: string
  readonly destination: string
  readonly error: unknown
}

export interface CopyOptions {
  readonly recursive: boolean
  /** Keep permission bits and times. */
  readonly preserve: boolean
}

/** The jobs of a command line. Their directories exist. */
export interface CopyPlan {
  readonly jobs: readonly CopyJob[]
  readonly failures: readonly CopyFailure[]
  /** Lines about what is skipped. */
  readonly skipped: readonly string[]
}

/** Files copied at once. A target runs four commands of one agent at once by default. */
const FILES_AT_ONCE = 4

/** Calls `copyOne` for each job, several at once, until `isOver`. */
export const copyJobs = async (
  jobs: readonly CopyJob[],
  { copyOne, isOver }: { copyOne(job: CopyJob): Promise<void>; isOver(): boolean },
): Promise<void> => {
  const next = jobs.values()
  const work = async (): Promise<void> => {
    for (const job of next) {
      if (isOver()) return
      await copyOne(job)
    }
  }
  await Promise.all(Array.from({ length: FILES_AT_ONCE }, work))
}

/** Collects a plan. */
export class PlanBuilder {
  readonly jobs: CopyJob[] = []
  readonly failures: CopyFailure[] = []
  readonly skipped: string[] = []

  skip(source: string, what: string): void {
    this.skipped.push(`${source}: ${what}, skipped`)
  }

  fail(source: string, destination: string, error: unknown): void {
    this.failures.push({ source, destination, error })
  }
}

/** An error of the local file system, with the path and the code. Other errors are unchanged. */
export const localError = (path: string, error: unknown): unknown => {
  const code = errnoOf(error)
  if (code === undefined) return error
  const why = /^[A-Z0-9_]+: ([^,]+)/.exec(errorText(error))?.[1] ?? errorText(error)
  return new AppError(code === 'ENOENT' ? 'file_not_found' : 'file_error', `${path}: ${why} (${code})`, {
    cause: error,
    data: { code, path },
  })
}

/** Calls `work` and names the path in an error of the local file system. */
export const atPath = async <T>(path: string, work: () => Promise<T>): Promise<T> => {
  try {
    return await work()
  } catch (error) {
    throw localError(path, error)
  }
}
