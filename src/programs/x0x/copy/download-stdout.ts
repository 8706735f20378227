import { AppError } from '../../../base/errors.ts'
import { type Output, write } from '../../../cli/output.ts'
import type { RemoteFiles } from '../../../clients/remote-files.ts'
import type { CopiedFile, CopyJob, CopyMeter } from './copy-job.ts'
import { unbroken } from './download-file.ts'

/** Copies a file of an agent to standard output. Its last bytes come when the SHA-256 of the whole fits. */
export class DownloadToStdout implements CopyJob {
  readonly destination = '-'
  readonly size = null
  readonly kept = null
  readonly source: string
  readonly #components: { readonly files: RemoteFiles; readonly stdout: Output }
  readonly #path: string

  constructor(
    components: { readonly files: RemoteFiles; readonly stdout: Output },
    init: { readonly host: string; readonly path: string },
  ) {
    this.#components = components
    this.#path = init.path
    this.source = `${init.host}:${init.path}`
  }

  async run(meter: CopyMeter, signal: AbortSignal): Promise<CopiedFile> {
    const { files, stdout } = this.#components
    const path = this.#path
    const { status, body } = await files.download(path, null, signal)
    let bytes = 0
    for await (const data of unbroken(body, { files, path, version: status.version, signal })) {
      // `OutputWatch` reports the lost reader.
      if (!(await write(stdout, data))) return { bytes, sha256: null }
      bytes += data.length
      meter.moved(data.length)
    }
    if (bytes !== status.size) throw new AppError('file_error', `${path}: ${bytes} of ${status.size} bytes arrived`)
    return { bytes, sha256: null }
  }
}
