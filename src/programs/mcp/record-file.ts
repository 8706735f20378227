import { errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { RecordDigest } from '../../doors/tools/record-digest.ts'
import { AppendedFile } from '../../journal/appended-file.ts'
import { jsonText } from '../../protocol/lines.ts'
import { MAX_RECORD, type RecordLine } from '../../protocol/tool-record.ts'

/** Lines that wait for the disk, in bytes; beyond this it does not keep up. */
const MAX_HELD = 16 * 1024 * 1024

const LAST: Readonly<Record<'full' | 'slow', string>> = {
  full: `a record has at most ${MAX_RECORD} bytes`,
  slow: 'the disk did not keep up',
}

/**
 * The file of a record. Where no more goes into it, it says so at its end, and whoever writes goes on without it. Its last line,
 * `end`, is written by `close` alone, and not behind a write that failed: a record without it is not finished.
 */
export class RecordFile {
  readonly #file: AppendedFile
  readonly #log: Logger
  #queue: Buffer[] = []
  #held = 0
  #total = 0
  #over = false
  #failed = false
  readonly #digest = new RecordDigest()
  #writing: Promise<void> | null = null

  private constructor(file: AppendedFile, log: Logger) {
    this.#file = file
    this.#log = log
  }

  /** Throws `conflict` where the file is there already. */
  static async create(path: string, log: Logger): Promise<RecordFile> {
    return new RecordFile(await AppendedFile.create(path), log)
  }

  /** Takes a line; waits for nothing. */
  write(line: Buffer): void {
    if (this.#over) return
    this.#total += line.length
    if (this.#total > MAX_RECORD) this.#end('full')
    else if (this.#held + line.length > MAX_HELD) this.#end('slow')
    else this.#keep(line)
  }

  /** Writes the last line and waits until all is on the disk. */
  async close(): Promise<void> {
    this.#over = true
    if (!this.#failed) this.#keepLine({ event: 'end', ...this.#digest.value() })
    while (this.#writing !== null) await this.#writing
    await this.#file.close()
  }

  #end(why: keyof typeof LAST): void {
    this.#over = true
    this.#log.warn({ file: this.#file.path }, `the record is not complete: ${LAST[why]}`)
    this.#keepLine({ event: 'incomplete', reason: LAST[why] })
  }

  #keepLine(line: RecordLine): void {
    this.#keep(Buffer.from(`${jsonText(line)}\n`))
  }

  #keep(line: Buffer): void {
    this.#digest.add(line.subarray(0, -1))
    this.#queue.push(line)
    this.#held += line.length
    this.#writing ??= this.#write()
  }

  async #write(): Promise<void> {
    // What is written in the same turn goes to the disk together.
    await Promise.resolve()
    try {
      while (this.#queue.length > 0) {
        const bytes = Buffer.concat(this.#queue)
        this.#queue = []
        await this.#file.append(bytes)
        this.#held -= bytes.length
      }
    } catch (error) {
      this.#over = true
      this.#failed = true
      this.#queue = []
      this.#log.warn({ file: this.#file.path, err: errorText(error) }, 'the record is not complete: it cannot be written')
    }
    this.#writing = null
  }
}
