import type { FastifyReply } from 'fastify'
import { Readable } from 'node:stream'
import * as z from 'zod'
import { AppError } from '../../base/errors.ts'
import { octal } from '../../base/format.ts'
import type { FileTarget } from '../../exec/files/file-runs.ts'
import { randomBytes } from '../../identity/hash.ts'
import { FILE_MODE_HEADER, FILE_TIME_HEADER, FILE_WAITING_HEADER, type FileStatusJson } from '../../protocol/api/files.ts'
import { toHex } from '../../protocol/ids.ts'
import { MAX_APPEND_BYTES } from '../../protocol/limits/files.ts'
import { ByteBuilder } from '../../protocol/lines.ts'
import { askNamed } from './agents.ts'
import { type Definitions, type RestRequest, define } from './definition.ts'
import {
  type FileAppendQuery,
  type FileWriteQuery,
  type FilesQuery,
  appendedFile,
  directoryAnswer,
  directoryRequest,
  fileAppendQuery,
  fileWriteQuery,
  filesAnswer,
  filesParams,
  filesQuery,
  writtenFile,
} from './file-schemas.ts'
import { targetOf } from './run-request.ts'
import { closeSignal } from './run-response.ts'
import type { RestServices } from './services.ts'

type Params = z.infer<typeof filesParams>

export const fileRoutes = (services: RestServices) =>
  ({
    'GET /agents/{agent}/files': define({
      params: filesParams,
      query: filesQuery,
      response: filesAnswer,
      streams: { 'application/octet-stream': z.string().describe('content of the file') },
      checkRoom: () => services.runner.checkRoom(),
      handle: async (request, reply) => answerFile(services, request, reply),
    }),
    'PUT /agents/{agent}/files': define({
      params: filesParams,
      query: fileWriteQuery,
      response: writtenFile,
      takesBytes: true,
      checkRoom: () => services.runner.checkRoom(),
      handle: async (request, reply) => writeFile(services, request, reply),
    }),
    'POST /agents/{agent}/files/append': define({
      params: filesParams,
      query: fileAppendQuery,
      response: appendedFile,
      takesBytes: true,
      checkRoom: () => services.runner.checkRoom(),
      handle: async (request, reply) => appendFile(services, request, reply),
    }),
    'POST /agents/{agent}/files/directory': define({
      params: filesParams,
      body: directoryRequest,
      response: directoryAnswer,
      checkRoom: () => services.runner.checkRoom(),
      handle: async ({ params, body: { path, mode } }, reply) => {
        checkProof(services)
        await onTarget(services, params, reply, async (target, signal) =>
          services.files.mkdir(target, { path, mode: modeOf(mode) }, signal),
        )
        return { ok: true, path }
      },
    }),
  }) satisfies Definitions

/** A proof of an operator covers one run, and a copy has many. */
const checkProof = ({ executor }: Pick<RestServices, 'executor'>): void => {
  if (executor.snapshot.require_operator_proof)
    throw new AppError('operator_proof_required', 'file copies are not possible, because this daemon sets require_operator_proof', {
      data: { next: '' },
    })
}

const modeOf = (mode: string | null | undefined): number | null => (typeof mode === 'string' ? Number.parseInt(mode, 8) : null)

/** Tells the client that its request waits for an approval. Interim answers can only precede the final one. */
const waitsOn =
  ({ raw }: FastifyReply): NonNullable<FileTarget['onWaiting']> =>
  (event) => {
    if (raw.headersSent || raw.destroyed) return
    // The link is required in such an answer.
    raw.writeEarlyHints({ link: '</exec/sessions>; rel="status"', [FILE_WAITING_HEADER]: JSON.stringify(event) })
  }

/** Calls `ask` for the agent, as `askNamed` does. */
const onTarget = async <T>(
  services: RestServices,
  { agent }: Params,
  reply: FastifyReply,
  ask: (target: FileTarget, signal: AbortSignal) => Promise<T>,
): Promise<T> =>
  askNamed(services, { agent }, closeSignal(reply), async (agent_id, signal) =>
    ask({ agent_id, host: agent, onWaiting: waitsOn(reply) }, signal),
  )

const answerFile = async (
  services: RestServices,
  { query, params, headers }: RestRequest<undefined, FilesQuery, Params>,
  reply: FastifyReply,
): Promise<unknown> => {
  checkProof(services)
  const { path, list = false, recursive = false, stat = false, digest = false, upload } = query
  if ([list, stat, digest, upload !== undefined].filter(Boolean).length > 1)
    throw new AppError('bad_request', 'list, stat, digest, upload: give at most one of them')
  const version = query.version ?? versionOf(headers['if-match'])
  const { files } = services
  return onTarget(services, params, reply, async (target, signal) => {
    if (list) return { ok: true, ...(await files.list(target, { path, recursive }, signal)) }
    if (digest) return { ok: true, ...(await files.digest(target, { path, version }, signal)) }
    if (upload !== undefined) return { ok: true, ...(await files.received(target, { path, upload }, signal)) }
    const status = await files.stat(target, path, signal)
    if (stat) return { ok: true, ...status }
    checkFile(path, status, version)
    const part = partOf(reply, status, headers.range)
    const { offset = 0, end = status.size } = part ?? {}
    const bytes = files.download(target, { path, version: status.version, size: status.size, offset, end }, signal)
    // A denial by an approver comes before the first byte, and must be the answer.
    const first = await bytes.next()
    setHead(reply, status, part)
    return reply.send(Readable.from(first.done === true ? [] : withFirst(first.value, bytes)))
  })
}

/** The version in `If-Match`, which is an ETag. */
const versionOf = (header: string | undefined): string | null => /^"([0-9a-f.-]{1,128})"$/.exec(header ?? '')?.[1] ?? null

const checkFile = (path: string, { type, version }: FileStatusJson, expected: string | null): void => {
  if (type === 'directory') throw new AppError('file_error', `${path}: is a directory (EISDIR)`, { data: { code: 'EISDIR', path } })
  if (type !== 'file') throw new AppError('file_error', `${path}: is not a regular file (EINVAL)`, { data: { code: 'EINVAL', path } })
  if (expected !== null && expected !== version)
    throw new AppError('file_error', `${path}: the file has changed (ESTALE)`, { data: { code: 'ESTALE', path, version } })
}

/** The part that a Range header names, from `offset` up to `end`. Null for none, or one of another form, which RFC 9110 allows to ignore. */
const rangeOf = (header: string | undefined, size: number): FilePart | null => {
  const [, first, last = ''] = /^bytes=([0-9]{1,15})-([0-9]{0,15})$/.exec(header ?? '') ?? []
  if (first === undefined) return null
  const end = last === '' ? size : Math.min(size, Number(last) + 1)
  return last !== '' && Number(last) < Number(first) ? null : { offset: Number(first), end }
}

interface FilePart {
  readonly offset: number
  readonly end: number
}

/** As `rangeOf`. Throws `bad_range`. */
const partOf = (reply: FastifyReply, { size }: FileStatusJson, header: string | undefined): FilePart | null => {
  const range = rangeOf(header, size)
  if (range === null || range.offset < size) return range
  reply.header('content-range', `bytes */${size}`)
  throw new AppError('bad_range', `the range begins at ${range.offset}, but the file has ${size} bytes`, { data: { size } })
}

/** Sets status and headers. `part` is null for the whole file. */
const setHead = (reply: FastifyReply, { size, mode, mtime_ms, version }: FileStatusJson, part: FilePart | null): void => {
  const { offset, end } = part ?? { offset: 0, end: size }
  if (part !== null) reply.code(206).header('content-range', `bytes ${offset}-${end - 1}/${size}`)
  reply.headers({
    'content-type': 'application/octet-stream',
    'content-length': end - offset,
    'accept-ranges': 'bytes',
    etag: `"${version}"`,
    'last-modified': new Date(mtime_ms).toUTCString(),
    [FILE_MODE_HEADER]: octal(mode),
    [FILE_TIME_HEADER]: Math.round(mtime_ms),
  })
}

async function* withFirst(
  first: Uint8Array,
  rest: AsyncGenerator<Uint8Array, void, undefined>,
): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    yield first
    yield* rest
  } finally {
    // The client may leave before the rest has begun.
    await rest.return()
  }
}

const UPLOAD_ID_BYTES = 16

const writeFile = async (
  services: RestServices,
  { query, params, streamed }: RestRequest<undefined, FileWriteQuery, Params>,
  reply: FastifyReply,
): Promise<unknown> => {
  checkProof(services)
  const { path, mode, mtime_ms = null, upload = toHex(randomBytes(UPLOAD_ID_BYTES)), offset = 0, sha256 = null } = query
  const { expect = null, parents = true } = query
  // The body can be read only once, so a successor of the agent is not asked.
  const target = { agent_id: targetOf(services.directory, params), host: params.agent, onWaiting: waitsOn(reply) }
  const content = { bytes: streamed?.bytes() ?? Readable.from([]), memory: streamed?.memory ?? NO_MEMORY }
  const file = { path, upload, offset, mode: modeOf(mode), mtime_ms, sha256, expect, parents }
  return { ok: true, ...(await services.files.upload(target, file, content, closeSignal(reply))) }
}

/** The data is in memory at once, because the Request signs its hashes. */
const appendFile = async (
  services: RestServices,
  { query, params, streamed }: RestRequest<undefined, FileAppendQuery, Params>,
  reply: FastifyReply,
): Promise<unknown> => {
  checkProof(services)
  const data = new ByteBuilder({ max: MAX_APPEND_BYTES })
  for await (const part of streamed?.bytes() ?? []) {
    if (data.length + part.length > MAX_APPEND_BYTES)
      throw new AppError('too_large', `the body has more than ${MAX_APPEND_BYTES} bytes; append it in parts`)
    data.add(part)
  }
  const target = { agent_id: targetOf(services.directory, params), host: params.agent, onWaiting: waitsOn(reply) }
  return { ok: true, ...(await services.files.append(target, query, data.take(), closeSignal(reply))) }
}

const NO_MEMORY = { keep: () => undefined, release: () => undefined }
