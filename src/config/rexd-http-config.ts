import { isIP } from 'node:net'
import { isAbsolute } from 'node:path'
import { AppError, errorText } from '../base/errors.ts'
import { readBounded, unreadable } from '../base/files.ts'
import type { TomlReader, TomlTable } from '../base/toml.ts'
import { type ListenAddress, MAX_SOCKET_PATH } from '../base/unix-sockets.ts'

/** How REXD is served over HTTP. */
export interface RexdHttpConfig {
  readonly listen: ListenAddress
  readonly token_file: string
  /** Names that Host may have besides those of this machine, and origins of pages that may call. */
  readonly allowed_hosts: readonly string[]
  readonly allowed_origins: readonly string[]
  /** Files, or null without TLS. */
  readonly tls: { readonly cert: string; readonly key: string; readonly client_ca: string | null } | null
}

export const HTTP_KEYS = [
  'http_listen',
  'http_wildcard',
  'token_file',
  'allowed_hosts',
  'allowed_origins',
  'tls_cert',
  'tls_key',
  'tls_client_ca',
] as const

type HttpKey = (typeof HTTP_KEYS)[number]

/** Keys that only make sense for an address on the network. */
const NETWORK_KEYS = ['http_wildcard', 'tls_cert', 'tls_key', 'tls_client_ca'] as const satisfies readonly HttpKey[]

/** Twice the size of all certificate authorities of a system. */
const MAX_PEM_BYTES = 1024 * 1024

const LOOPBACK = /^(127\.|\[::1\]$)/
/** Wildcard addresses in the form of URLs (WHATWG URL, host serializing). */
const WILDCARD = ['0.0.0.0', '[::]', '[::ffff:0:0]']
/** `127.0.0.1:7680`, `[::1]:7680`. */
const LISTEN = /^(?:\[([0-9a-f:.]+)\]|([0-9.]+)):([0-9]{1,5})$/
const UNIX = 'unix:'
/** Replaces a wrong address, so that the other keys are checked too. */
const NOWHERE: ListenAddress = { kind: 'tcp', host: '127.0.0.1', port: 0 }

const at = (key: HttpKey) => ['server', key]

/** Null without HTTP. */
export const readHttpConfig = (toml: TomlReader, server: TomlTable): RexdHttpConfig | null => {
  const text = server['http_listen'] === '' ? null : toml.text(at('http_listen'), server['http_listen'])
  const listen = text === null ? NOWHERE : readListen(toml, text)
  const wildcard = toml.boolean(at('http_wildcard'), server['http_wildcard']) ?? false
  const token_file = toml.absolutePath(at('token_file'), server['token_file'])
  const tls = readTls(toml, server)
  const texts = (name: 'allowed_hosts' | 'allowed_origins'): readonly string[] => toml.strings(at(name), server[name]) ?? []
  const [allowed_hosts, allowed_origins] = [texts('allowed_hosts'), texts('allowed_origins')]
  const given = HTTP_KEYS.filter((name) => server[name] !== undefined)
  // An empty value means no address, as in upstream's configurations.
  if (server['http_listen'] === '') return null
  if (!given.includes('http_listen')) {
    for (const name of given) toml.problem(at(name), 'has no effect without http_listen')
    return null
  }
  if (!given.includes('token_file')) toml.problem(at('token_file'), 'is required with http_listen: every client needs a token')
  if (listen.kind === 'unix') {
    for (const name of NETWORK_KEYS) if (given.includes(name)) toml.problem(at(name), 'has no effect for a Unix socket')
  } else judgeNetwork(toml, listen.host, { given, wildcard, tls })
  return {
    listen,
    token_file: token_file ?? '',
    allowed_hosts: allowed_hosts.map((one) => one.toLowerCase()),
    allowed_origins: allowed_origins.map((one) => one.toLowerCase()),
    tls,
  }
}

const readTls = (toml: TomlReader, server: TomlTable): RexdHttpConfig['tls'] => {
  const path = (key: 'tls_cert' | 'tls_key' | 'tls_client_ca'): string | null => toml.absolutePath(at(key), server[key])
  const [cert, key, client_ca] = [path('tls_cert'), path('tls_key'), path('tls_client_ca')]
  return cert === null || key === null ? null : { cert, key, client_ca }
}

interface NetworkKeys {
  readonly given: readonly HttpKey[]
  readonly wildcard: boolean
  readonly tls: RexdHttpConfig['tls']
}

/** Checks which users can reach an address or read the traffic to it. */
const judgeNetwork = (toml: TomlReader, host: string, { given, wildcard, tls }: NetworkKeys): void => {
  const hasCert = given.includes('tls_cert')
  if (hasCert !== given.includes('tls_key')) toml.problem(at('tls_cert'), 'tls_cert and tls_key belong together')
  if (given.includes('tls_client_ca') && !hasCert) toml.problem(at('tls_client_ca'), 'has no effect without tls_cert and tls_key')
  if (WILDCARD.includes(spelled(host)) && !wildcard)
    toml.problem(at('http_listen'), `${host} listens on all networks of this machine: if you intend that, also set http_wildcard = true`)
  if (!LOOPBACK.test(spelled(host)) && tls === null)
    toml.warning(
      at('http_listen'),
      `${host} is reachable over a network, where others can read the token without TLS: set tls_cert and tls_key`,
    )
}

/** PEM texts. */
export interface TlsMaterial {
  readonly cert: string
  readonly key: string
  /** Null if callers need no certificate. */
  readonly clientCa: string | null
}

/** Null without TLS. Throws `bad_config` for a file that cannot be read, is not a certificate, or does not fit its key. */
export const readTlsMaterial = async ({ tls }: RexdHttpConfig): Promise<TlsMaterial | null> => {
  if (tls === null) return null
  const read = async (key: string, file: string): Promise<string> => {
    try {
      return (await readBounded(file, { max: MAX_PEM_BYTES })).toString()
    } catch (error) {
      throw unreadable('bad_config', file, error, `server.${key}: ${file}`)
    }
  }
  const [cert, key] = [await read('tls_cert', tls.cert), await read('tls_key', tls.key)]
  const clientCa = tls.client_ca === null ? null : await read('tls_client_ca', tls.client_ca)
  // Loaded only for certificates.
  const { createSecureContext } = await import('node:tls')
  try {
    createSecureContext({ cert, key, ...(clientCa === null ? {} : { ca: clientCa }) })
  } catch (error) {
    throw new AppError('bad_config', `server.tls_cert, tls_key: the certificate cannot be used: ${errorText(error)}`, { cause: error })
  }
  return { cert, key, clientCa }
}

const spelled = (host: string): string => new URL(`http://${isIP(host) === 6 ? `[${host}]` : host}`).hostname

const readListen = (toml: TomlReader, text: string): ListenAddress => {
  if (text.startsWith(UNIX)) return readSocket(toml, text.slice(UNIX.length))
  const [, v6, v4, port] = LISTEN.exec(text) ?? []
  const host = v6 ?? v4 ?? ''
  if (isIP(host) !== 0 && Number(port) <= 65_535) return { kind: 'tcp', host, port: Number(port) }
  toml.problem(at('http_listen'), `${JSON.stringify(text)} is not an address and a port such as "127.0.0.1:7680"`)
  return NOWHERE
}

const readSocket = (toml: TomlReader, path: string): ListenAddress => {
  const size = Buffer.byteLength(path)
  if (!isAbsolute(path))
    toml.problem(at('http_listen'), `${JSON.stringify(path)} must be an absolute path, as in "unix:/run/rexd/rexd.sock"`)
  else if (size > MAX_SOCKET_PATH)
    toml.problem(at('http_listen'), `the path of a socket has at most ${MAX_SOCKET_PATH} bytes, not ${size}; choose a shorter one`)
  return { kind: 'unix', path }
}
