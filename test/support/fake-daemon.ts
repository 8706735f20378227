import { writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { join } from 'node:path'
import { PassThrough, Writable } from 'node:stream'
import type { TestContext } from 'node:test'

import type { CliIo } from '../../src/programs/x0x/context.ts'
import { main } from '../../src/programs/x0x/main.ts'
import { RAW_RUN_TYPE } from '../../src/protocol/api/run-events.ts'
import { tempDir } from './temp-dir.ts'

export interface SeenRequest {
  readonly method: string
  readonly path: string
  readonly headers: IncomingMessage['headers']
  readonly body: string
}

type Answer = (request: SeenRequest, response: ServerResponse) => void

/** Serves a daemon's unix socket and can send answers that a faulty daemon might send. */
export const fakeDaemon = async (
  t: TestContext,
  answer: Answer,
  /** Called when a request begins. The body of the request may never end. */
  asked: (() => void) | ((request: IncomingMessage, response: ServerResponse) => void) = () => undefined,
): Promise<{ dir: string; seen: SeenRequest[] }> => {
  const dir = await tempDir(t)
  await writeFile(join(dir, 'api-token'), `${'7'.repeat(64)}\n`, { mode: 0o600 })
  await writeFile(join(dir, 'operator.key'), `${'8'.repeat(64)}\n`, { mode: 0o600 })
  const seen: SeenRequest[] = []
  const server = createServer((request, response) => {
    const parts: Buffer[] = []
    asked(request, response)
    request.on('data', (part: Buffer) => parts.push(part))
    request.on('end', () => {
      const one = { method: request.method ?? '', path: request.url ?? '', headers: request.headers, body: Buffer.concat(parts).toString() }
      seen.push(one)
      if (!response.headersSent) answer(one, response)
    })
  })
  await new Promise<void>((resolve) => server.listen(join(dir, 'api.sock'), resolve))
  t.after(async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })
  return { dir, seen }
}

export const json = (response: ServerResponse, status: number, value: unknown): void => {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
}

/** Encodes a run event in the raw format, where the bytes of output follow their line. In `event`, output is in `data_b64`. */
export const runEventBytes = (event: object): Buffer => {
  const { data_b64, ...rest } = event as { data_b64?: string }
  if (data_b64 === undefined) return Buffer.from(`${JSON.stringify(rest)}\n`)
  const data = Buffer.from(data_b64, 'base64')
  return Buffer.concat([Buffer.from(`${JSON.stringify({ ...rest, data_bytes: data.length })}\n`), data])
}

export const beginRunAnswer = (response: ServerResponse): ServerResponse => response.writeHead(200, { 'content-type': RAW_RUN_TYPE })

export const runAnswer = (response: ServerResponse, ...events: readonly object[]): void => {
  beginRunAnswer(response).end(Buffer.concat(events.map(runEventBytes)))
}

export interface InProcess {
  readonly status: number
  readonly stdout: string
  readonly stderr: string
}

export interface InProcessOptions {
  readonly stdin?: string
  /** Variables of the command line. By default the output has no colours. */
  readonly env?: Readonly<Record<string, string>>
  /** All three streams are terminals. */
  readonly terminal?: boolean
  readonly onSignal?: CliIo['onSignal']
  /** Called when something was written to stdout. */
  readonly onOutput?: () => void
  /** Every write to stdout fails with this error. */
  readonly stdoutFails?: Error
}

/** Runs a command line in this process. */
export const runCli = async (argv: readonly string[], options: InProcessOptions = {}): Promise<InProcess> => {
  const output = (): { stream: PassThrough & { isTTY?: boolean }; text: () => string } => {
    const stream: PassThrough & { isTTY?: boolean } = new PassThrough()
    if (options.terminal === true) stream.isTTY = true
    const parts: Buffer[] = []
    stream.on('data', (part: Buffer) => parts.push(part))
    return { stream, text: () => Buffer.concat(parts).toString() }
  }
  const [stdout, stderr] = [output(), output()]
  stdout.stream.on('data', () => options.onOutput?.())
  const stdin: PassThrough & { isTTY?: boolean } = new PassThrough()
  if (options.terminal === true) stdin.isTTY = true
  stdin.end(options.stdin ?? '')
  const full = new Writable({ write: (_chunk, _encoding, done) => done(options.stdoutFails) })
  const io: CliIo = {
    stdin,
    stdout: options.stdoutFails === undefined ? stdout.stream : full,
    stderr: stderr.stream,
    onSignal: options.onSignal ?? (() => () => undefined),
  }
  const status = await main(argv, options.env ?? { NO_COLOR: '1' }, io)
  await new Promise((resolve) => setImmediate(resolve))
  return { status, stdout: stdout.text(), stderr: stderr.text() }
}
