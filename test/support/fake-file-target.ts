import { createHash } from 'node:crypto'
import { dirname } from 'node:path'

import type { ExecClient } from '../../src/exec/client.ts'
import type { RunOutcome, RunSink, RunSpec } from '../../src/exec/run-spec.ts'
import { fileErrorLine, parseFileCommand, type FileCommand } from '../../src/protocol/file-command.ts'
import { RUN_ID, runOutcome } from './journal-exit.ts'
import { AGENT, MACHINE } from './rest-server.ts'

/** Modification time of all files. */
export const MTIME = '1970-01-01T00:00:01.000000000Z'
const TIME = { mtime_ms: 1_000, mtime: MTIME }
const DIRECTORY = { type: 'directory', size: 0, mode: 0o755, ...TIME }

export const sha256Of = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

const outcomeOf = (over: Partial<RunOutcome>): RunOutcome => runOutcome({ agent_id: AGENT, machine_id: MACHINE, ...over })

/** An outcome that the test chooses for a run, instead of executing it. */
export type Verdict = Partial<RunOutcome> & { readonly stderr?: string }

/** Executes file commands on files in memory, and reports them as runs of a requester. */
export class FakeFileTarget implements Pick<ExecClient, 'run'> {
  readonly files = new Map<string, Buffer>()
  readonly directories = new Set<string>()
  /** Unfinished uploads by their IDs. */
  readonly uploads = new Map<string, Buffer>()
  readonly commands: FileCommand[] = []
  /** The highest number of concurrent runs so far. */
  mostAtOnce = 0
  /** Decides a run instead of executing it, unless it returns null. */
  judge: (command: FileCommand, at: number) => Verdict | null = () => null
  /** Awaited before a command begins. */
  starting: (command: FileCommand) => Promise<void> = async () => undefined
  /** Awaited before a command is executed. */
  before: (command: FileCommand) => Promise<void> = async () => undefined
  /** Changes the output of a command. */
  falsify: (command: FileCommand, output: Buffer) => Buffer = (_command, output) => output
  #running = 0

  /** Commands of one kind, in order of arrival. */
  of<O extends FileCommand['op']>(op: O): Extract<FileCommand, { op: O }>[] {
    return this.commands.filter((command) => command.op === op) as Extract<FileCommand, { op: O }>[]
  }

  async run(spec: RunSpec, sink: RunSink, signal?: AbortSignal): Promise<RunOutcome> {
    const command = parseFileCommand(spec.argv)
    if (command === null) throw new Error(`not a file command: ${spec.argv.join(' ')}`)
    this.commands.push(command)
    this.#running += 1
    this.mostAtOnce = Math.max(this.mostAtOnce, this.#running)
    try {
      return await this.#run(command, spec, sink, signal)
    } finally {
      this.#running -= 1
    }
  }

  async #run(command: FileCommand, spec: RunSpec, sink: RunSink, signal?: AbortSignal): Promise<RunOutcome> {
    const verdict = this.judge(command, this.commands.length - 1)
    if (verdict?.denial_reason !== undefined || verdict?.incomplete === true) return outcomeOf({ ok: false, code: null, ...verdict })
    await this.starting(command)
    await sink.event({ type: 'started', request_id: RUN_ID, agent_id: AGENT, machine_id: MACHINE, pid: 1 })
    await this.before(command)
    if (signal?.aborted === true) return outcomeOf({ warnings: ['cancelled'], code: null, signal: 15 })
    const stdin: Uint8Array[] = []
    if (spec.stdin !== null) for await (const part of spec.stdin.chunks) stdin.push(part)
    const { stderr, ...told } = verdict ?? this.#perform(command, Buffer.concat(stdin))
    if (stderr !== undefined) {
      await sink.event({ type: 'stderr', request_id: RUN_ID, seq: 0, data: Buffer.from(stderr) })
      return outcomeOf({ code: 1, ...told })
    }
    if (verdict !== null) return outcomeOf(told)
    await this.#write(sink, this.falsify(command, (told as { output?: Buffer }).output ?? Buffer.alloc(0)), signal)
    return outcomeOf({})
  }

  async #write(sink: RunSink, output: Buffer, signal?: AbortSignal): Promise<void> {
    for (let [at, seq] = [0, 0]; at < output.length; at += 60 * 1024, seq += 1) {
      if (signal?.aborted === true) return
      await sink.event({ type: 'stdout', request_id: RUN_ID, seq, data: output.subarray(at, at + 60 * 1024) })
    }
  }

  #perform(command: FileCommand, stdin: Buffer): Verdict & { output?: Buffer } {
    const { path } = command
    const line = (value: object): { output: Buffer } => ({ output: Buffer.from(`${JSON.stringify(value)}\n`) })
    const file = this.files.get(path)
    const facts = (bytes: Buffer) => ({ type: 'file', size: bytes.length, mode: 0o644, ...TIME, version: versionOf(bytes) })
    if (command.op === 'upload') return line({ received: this.uploads.get(command.upload)?.length ?? 0 })
    if (command.op === 'write') return this.#take(command, stdin)
    if (command.op === 'mkdir') {
      for (let parent = path; parent !== '/'; parent = dirname(parent)) this.directories.add(parent)
      return {}
    }
    if (command.op === 'list') return this.#list(path, command.recursive)
    if (command.op === 'stat' && this.directories.has(path)) return line({ ...DIRECTORY, version: '0' })
    if (file === undefined) return { stderr: fileErrorLine(path, 'no such file or directory', 'ENOENT') }
    if (command.op === 'stat') return line(facts(file))
    if (command.op === 'append') {
      this.files.set(path, Buffer.concat([file, stdin]))
      return line({ ...TIME, created: false })
    }
    if (command.version !== null && command.version !== versionOf(file))
      return { stderr: fileErrorLine(path, 'the file has changed', 'ESTALE') }
    if (command.op === 'hash') return line({ size: file.length, sha256: sha256Of(file) })
    return { output: file.subarray(command.offset, command.offset + command.length) }
  }

  #list(path: string, recursive: boolean): Verdict & { output?: Buffer } {
    if (!this.directories.has(path))
      return { stderr: fileErrorLine(path, 'is not a directory', this.files.has(path) ? 'ENOTDIR' : 'ENOENT') }
    const below = [
      ...[...this.directories].map((name) => [name, DIRECTORY] as const),
      ...[...this.files].map(([name, { length: size }]) => [name, { type: 'file', size, mode: 0o644, ...TIME }] as const),
    ].flatMap(([name, facts]) => (name.startsWith(`${path}/`) ? { path: name.slice(path.length + 1), ...facts } : []))
    const entries = below.filter((entry) => recursive || !entry.path.includes('/'))
    return { output: Buffer.from([...entries, { left_out: 0 }].map((entry) => `${JSON.stringify(entry)}\n`).join('')) }
  }

  #take({ path, upload, offset, finish }: Extract<FileCommand, { op: 'write' }>, stdin: Buffer): Verdict & { output?: Buffer } {
    const had = this.uploads.get(upload) ?? Buffer.alloc(0)
    if (offset !== had.length) return { stderr: fileErrorLine(path, `the upload has ${had.length} bytes`, 'EINVAL') }
    const bytes = Buffer.concat([had, stdin])
    this.uploads.set(upload, bytes)
    if (finish === null) return { output: Buffer.from(`{"received":${bytes.length}}\n`) }
    if (finish.sha256 !== sha256Of(bytes)) return { stderr: fileErrorLine(path, 'the SHA-256 differs', 'EBADMSG') }
    const written = { size: bytes.length, sha256: finish.sha256, ...TIME, created: !this.files.has(path) }
    this.uploads.delete(upload)
    this.files.set(path, bytes)
    return { output: Buffer.from(`${JSON.stringify(written)}\n`) }
  }
}

export const versionOf = (bytes: Uint8Array): string => sha256Of(bytes).slice(0, 16)
