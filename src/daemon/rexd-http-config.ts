import { readFile } from 'node:fs/promises'
import { isIP } from 'node:net'
import { createSecureContext } from 'node:tls'

import { AppError, errorText } from '../base/errors.ts'
import type { TomlReader, TomlTable } from '../base/toml-reader.ts'

/** Where and how REXD is spoken over HTTP. */
export interface RexdHttpConfig {
  readonly host: string
  readonly port: number
  readonly token_file: string
  /** Names beside those of this machine that Host may have, and origins of pages that may ask. */
  readonly allowed_hosts: readonly string[]
  readonly allowed_origins: readonly string[]
  /** Files; null: no TLS. */
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

const LOOPBACK = /^(127\.|\[::1\]$)/
/** In the one spelling that a URL has for each address (WHATWG URL, host serializing). */
const WILDCARD = ['0.0.0.0', '[::]', '[::ffff:0:0]']
/** `127.0.0.1:7680`, `[::1]:7680`. */
const LISTEN = /^(?:\[([0-9a-f:.]+)\]|([0-9.]+)):([0-9]{1,5})$/

/** Null: there is no HTTP. */
export const readHttpConfig = (toml: TomlReader, server: TomlTable): RexdHttpConfig | null => {
  const at = (key: (typeof HTTP_KEYS)[number]) => ['server', key]
  const listen = toml.text(at('http_listen'), server['http_listen'])
  const [host, port] = listen === null ? ['127.0.0.1', 0] : readListen(toml, listen)
  const wildcard = toml.boolean(at('http_wildcard'), server['http_wildcard']) ?? false
  const token_file = toml.absolutePath(at('token_file'), server['token_file'])
  const path = (key: 'tls_cert' | 'tls_key' | 'tls_client_ca'): string | null => toml.absolutePath(at(key), server[key])
  const [cert, key, client_ca] = [path('tls_cert'), path('tls_key'), path('tls_client_ca')]
  const texts = (name: 'allowed_hosts' | 'allowed_origins'): readonly string[] => toml.strings(at(name), server[name]) ?? []
  const [allowed_hosts, allowed_origins] = [texts('allowed_hosts'), texts('allowed_origins')]
  if (server['http_listen'] === undefined) {
    for (const name of HTTP_KEYS) if (server[name] !== undefined) toml.problem(at(name), 'means nothing without http_listen')
    return null
  }
  if (server['token_file'] === undefined) toml.problem(at('token_file'), 'is required with http_listen: nobody is heard without a token')
  const given = (name: (typeof HTTP_KEYS)[number]): boolean => server[name] !== undefined
  if (given('tls_cert') !== given('tls_key')) toml.problem(at('tls_cert'), 'tls_cert and tls_key belong together')
  if (given('tls_client_ca') && !given('tls_cert')) toml.problem(at('tls_client_ca'), 'means nothing without tls_cert and tls_key')
  if (WILDCARD.includes(spelled(host)) && !wildcard)
    toml.problem(
      at('http_listen'),
      `${host} is every network that this machine is on: where that is meant, say so a second time with http_wildcard = true`,
    )
  if (!LOOPBACK.test(spelled(host)) && cert === null)
    toml.warning(
      at('http_listen'),
      `${host} is reached over a network, and without tls_cert and tls_key everybody on the way reads the token`,
    )
  const tls = cert === null || key === null ? null : { cert, key, client_ca }
  return {
    host,
    port,
    token_file: token_file ?? '',
    allowed_hosts: allowed_hosts.map((one) => one.toLowerCase()),
    allowed_origins: allowed_origins.map((one) => one.toLowerCase()),
    tls,
  }
}

/** PEM texts. */
export interface TlsMaterial {
  readonly cert: string
  readonly key: string
  /** Null: no certificate is asked of callers. */
  readonly clientCa: string | null
}

/** Null: no TLS. Throws `bad_config` for a file that cannot be read, and for what is no certificate or does not fit its key. */
export const readTlsMaterial = async ({ tls }: RexdHttpConfig): Promise<TlsMaterial | null> => {
  if (tls === null) return null
  const read = async (key: string, file: string): Promise<string> => {
    try {
      return await readFile(file, 'utf8')
    } catch (error) {
      throw new AppError('bad_config', `server.${key}: ${errorText(error)}`, { cause: error })
    }
  }
  const [cert, key] = [await read('tls_cert', tls.cert), await read('tls_key', tls.key)]
  const clientCa = tls.client_ca === null ? null : await read('tls_client_ca', tls.client_ca)
  try {
    createSecureContext({ cert, key, ...(clientCa === null ? {} : { ca: clientCa }) })
  } catch (error) {
    throw new AppError('bad_config', `server.tls_cert, tls_key: they cannot be used: ${errorText(error)}`, { cause: error })
  }
  return { cert, key, clientCa }
}

const spelled = (host: string): string => new URL(`http://${isIP(host) === 6 ? `[${host}]` : host}`).hostname

const readListen = (toml: TomlReader, text: string): [host: string, port: number] => {
  const [, v6, v4, port] = LISTEN.exec(text) ?? []
  const host = v6 ?? v4 ?? ''
  if (isIP(host) !== 0 && Number(port) <= 65_535) return [host, Number(port)]
  toml.problem(['server', 'http_listen'], `${JSON.stringify(text)} is not an address and a port such as "127.0.0.1:7680"`)
  return ['127.0.0.1', 0]
}
