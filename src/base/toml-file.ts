import { createHash } from 'node:crypto'
import { TomlError, parse } from 'smol-toml'
import { type BoundedRead, readBounded, unreadable } from './bounded-file.ts'
import { AppError, type ErrorCode, isMissing } from './errors.ts'
import { type KeyPath, linesOf } from './toml-lines.ts'

/** A TOML file whose syntax is right; what it means is for its reader to judge. */
export interface TomlDocument {
  readonly path: string
  readonly value: Record<string, unknown>
  /** Of its bytes, hex. */
  readonly sha256: string
  /** The line, from 1, of a key or of the nearest thing around it. */
  lineOf(keyPath: KeyPath): number
}

export interface TomlOptions {
  /** Integers come as bigint, for a reader that must tell `1` from `1.0` or keep one of 64 bits. */
  readonly bigints?: boolean
}

export interface TomlFileOptions extends TomlOptions, Pick<BoundedRead, 'pipes'> {}

/** The most bytes of a file: an ACL of a hundred thousand commands has fewer. */
const MAX_TOML_BYTES = 16 * 1024 * 1024

const sha256Of = (content: string | Uint8Array): string => createHash('sha256').update(content).digest('hex')

/** Parses TOML; a syntax error becomes `code` with `path:line:column` before its text. */
export const parseToml = (text: string, path: string, code: ErrorCode, options: TomlOptions = {}): TomlDocument => {
  try {
    const value = parse(text, { integersAsBigInt: options.bigints ?? false })
    return { path, value, sha256: sha256Of(text), lineOf: linesOf(text) }
  } catch (error) {
    if (!(error instanceof TomlError)) throw error
    const { line, column } = error
    const [reason] = error.message.replace(/^Invalid TOML document: /, '').split('\n')
    const [bare] = /^[A-Za-z][^\s,\]}#]*/.exec(text.split('\n')[line - 1]?.slice(column - 1) ?? '') ?? []
    const hint = reason === 'invalid value' && bare !== undefined ? ` ${bare}: a text needs quotes, such as ${JSON.stringify(bare)}` : ''
    throw new AppError(code, `${path}:${line}:${column}: ${reason}${hint}`, { cause: error, data: { file: path, line, column } })
  }
}

/** Reads a TOML file, with its bytes. A missing file is `not_found`; anything else that is wrong with it is `code`. */
export const readToml = async (
  path: string,
  code: ErrorCode,
  { pipes = false, ...options }: TomlFileOptions = {},
): Promise<TomlDocument & { readonly bytes: Buffer }> => {
  let bytes: Buffer
  try {
    bytes = await readBounded(path, { max: MAX_TOML_BYTES, pipes })
  } catch (error) {
    throw unreadable(isMissing(error) ? 'not_found' : code, path, error)
  }
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(bytes)
  } catch (error) {
    throw new AppError(code, `${path}: not valid UTF-8`, { cause: error, data: { file: path } })
  }
  return { ...parseToml(text, path, code, options), sha256: sha256Of(bytes), bytes }
}

/** A semantic error in a TOML file, in the form that editors understand: `file:line: key: reason`. */
export const tomlError = (code: ErrorCode, document: TomlDocument, keyPath: KeyPath, reason: string): AppError => {
  const line = document.lineOf(keyPath)
  const key = keyPath.reduce<string>((text, part) => (typeof part === 'number' ? `${text}[${part}]` : text ? `${text}.${part}` : part), '')
  return new AppError(code, `${document.path}:${line}: ${key ? `${key}: ` : ''}${reason}`, { data: { file: document.path, line, key } })
}
