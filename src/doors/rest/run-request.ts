import type { Readable } from 'node:stream'
import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { type RunSpec, type StdinSource, bufferedStdin } from '../../exec/run-spec.ts'
import { PieceHashes, pieceHashesInTurns } from '../../identity/piece-hashes.ts'
import { type AgentId, fromHex } from '../../protocol/ids.ts'
import { MAX_STDIN_SPOOL } from '../../protocol/limits/wire.ts'
import { ByteBuilder } from '../../protocol/lines.ts'
import { stdinPieces } from '../../protocol/wire/exec.ts'
import { parseWith } from '../validation.ts'
import type { RestServices } from './services.ts'
import { bodyLines, decodeBase64, parseJson } from './event-stream.ts'
import type { RequestBody } from './request-bodies.ts'
import { type RunRequest, stdinLine } from './schemas.ts'

/** How long the server reads and drops the rest of a body after its answer, so that the client can read the answer. */
const DISCARD_MS = 2_000

/** A body that is read while its request is answered: lines with the request object and then stdin, or the bytes of a file. */
export class StreamedBody {
  readonly #body: Readable
  readonly #lines: AsyncGenerator<Uint8Array, void, undefined>
  readonly #held: RequestBody | null
  /** Whether lines are retained until the answer ends and count against the budget. */
  #keeping = true

  constructor(init: { body: Readable; held: RequestBody | null }) {
    this.#body = init.body
    this.#held = init.held
    // A run may end before its stdin. Its answer needs the same connection.
    this.#lines = bodyLines(this.#counted(init.body.iterator({ destroyOnReturn: false })))
  }

  /** The request object and its bytes as received, or null if the body is empty. */
  async head(): Promise<{ readonly value: unknown; readonly bytes: Uint8Array }> {
    const first = await this.#lines.next()
    return first.done === true ? { value: null, bytes: new Uint8Array(0) } : { value: parseJson(first.value), bytes: first.value }
  }

  /**
   * Reads and drops the rest of the body for a limited time. Closing the connection of a client that still sends would reset it, and the
   * client would lose the answer.
   */
  async discardRest(clock: Clock): Promise<void> {
    const body = this.#body
    if (body.readableEnded || body.destroyed) return
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = clock.setTimeout(resolve, DISCARD_MS)
    const discard = (): void => {
      while (body.read() !== null);
    }
    body.on('readable', discard).once('end', resolve).once('close', resolve)
    discard()
    await promise
    timer.cancel()
    body.off('readable', discard).off('end', resolve).off('close', resolve)
  }

  /** From now on, lines go directly to the run, so the client may take as long as the run. */
  passOn(): void {
    this.#keeping = false
    this.#held?.whole()
  }

  /** The body as it comes, if it is not in lines. Its reader counts the parts that it holds with `memory`. */
  bytes(): AsyncIterable<Uint8Array> {
    this.passOn()
    return this.#body.iterator({ destroyOnReturn: false }) as AsyncIterable<Uint8Array>
  }

  /** The budget that counts parts in memory, or null if the body is empty. */
  get memory(): Pick<RequestBody, 'keep' | 'release'> | null {
    return this.#held
  }

  async *#counted(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
    for await (const chunk of chunks) {
      if (this.#keeping) this.#held?.keep(chunk.length)
      yield chunk
    }
    this.#held?.whole()
  }

  /** The objects after the first. */
  async *values(): AsyncGenerator<unknown, void, undefined> {
    for await (const line of this.#lines) yield parseJson(line)
  }

  /** Stdin: the bytes of the lines after the first. */
  async *stdin(): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const value of this.values()) {
      const bytes = decodeBase64(parseWith(stdinLine, value).stdin_b64, 'stdin_b64')
      if (bytes.length > 0) yield bytes
    }
  }
}

/** Throws `bad_request` unless the body names the agent in exactly one way. */
export const targetOf = (
  directory: Pick<RestServices['directory'], 'resolve'>,
  body: { agent_id?: string | undefined; agent?: string | undefined },
): AgentId => {
  const text = body.agent_id ?? body.agent
  if (text === undefined || (body.agent_id !== undefined && body.agent !== undefined)) {
    throw new AppError('bad_request', 'agent_id, agent: name the agent with exactly one of the two')
  }
  return directory.resolve(text)
}

/** Throws `bad_request`, `too_large`, `unknown_agent`, `ambiguous_agent`. */
export const toRunSpec = async (
  body: RunRequest,
  streamed: StreamedBody | null,
  directory: RestServices['directory'],
): Promise<RunSpec> => ({
  agent_id: targetOf(directory, body),
  argv: body.argv,
  stdin: streamed === null ? await wholeStdin(body) : await streamedStdin(body, streamed),
  timeout_ms: body.timeout_ms ?? null,
  cwd: body.cwd ?? null,
  clamp: body.clamp ?? false,
  ...(body.request_id === undefined ? {} : { request_id: body.request_id }),
  ...(body.session === undefined ? {} : { session: body.session }),
})

const wholeStdin = async (body: RunRequest): Promise<StdinSource | null> => {
  if (body.stdin_len !== undefined || body.stdin_sha256 !== undefined) {
    throw new AppError('bad_request', 'stdin_len, stdin_sha256: only with a body of type application/x-ndjson')
  }
  if (body.stdin_b64 === undefined) return null
  const bytes = decodeBase64(body.stdin_b64, 'stdin_b64')
  return bufferedStdin(bytes, await pieceHashesInTurns(bytes))
}

const streamedStdin = async (body: RunRequest, streamed: StreamedBody): Promise<StdinSource> => {
  const { stdin_b64, stdin_len, stdin_sha256 } = body
  if (stdin_b64 !== undefined) throw new AppError('bad_request', 'stdin_b64: in a streamed body, send stdin in separate lines')
  if (stdin_len !== undefined && stdin_sha256 !== undefined) {
    const count = stdinPieces(stdin_len)
    if (stdin_sha256.length !== count)
      throw new AppError('bad_request', `stdin_sha256: expected ${count} hashes for ${stdin_len} bytes, one for each MiB or part of one`)
    streamed.passOn()
    return { len: stdin_len, pieces: stdin_sha256.map(fromHex), chunks: streamed.stdin() }
  }
  if (stdin_len !== undefined || stdin_sha256 !== undefined) {
    throw new AppError(
      'bad_request',
      'stdin_len, stdin_sha256: give both, or neither; without them, x0xd reads all of stdin before the run starts',
    )
  }
  return spool(streamed.stdin())
}

/** Stdin of unknown length is collected whole, because the Request signs its hashes before the first byte is sent. */
const spool = async (chunks: AsyncIterable<Uint8Array>): Promise<StdinSource> => {
  const kept = new ByteBuilder({ max: MAX_STDIN_SPOOL })
  const hashes = new PieceHashes()
  for await (const chunk of chunks) {
    if (kept.length + chunk.length > MAX_STDIN_SPOOL) {
      throw new AppError('too_large', `stdin is longer than ${MAX_STDIN_SPOOL} bytes; send stdin_len and stdin_sha256 first to stream it`)
    }
    kept.add(chunk)
    hashes.update(chunk)
  }
  return bufferedStdin(kept.take(), hashes.digest())
}
