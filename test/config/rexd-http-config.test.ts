import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { test } from 'node:test'

import { parseToml } from '../../src/base/toml.ts'
import { TomlReader, type TomlTable } from '../../src/base/toml.ts'
import { HTTP_KEYS, readHttpConfig, readTlsMaterial, type RexdHttpConfig } from '../../src/config/rexd-http-config.ts'
import { tempDir } from '../support/temp-dir.ts'

const readHttp = (lines: string): { http: RexdHttpConfig | null; problems: readonly string[]; warnings: readonly string[] } => {
  const document = parseToml(`[server]\n${lines}\n`, 'a', 'bad_config', { bigints: true })
  const toml = new TomlReader(document, 'bad_config')
  const http = readHttpConfig(toml, document.value['server'] as TomlTable)
  return { http, problems: toml.problems, warnings: toml.warnings }
}

const TOKEN = 'token_file = "/run/rexd/token"\n'
const LOCAL = `http_listen = "127.0.0.1:7680"\n${TOKEN}`

const httpOf = (lines: string): RexdHttpConfig => {
  const { http, problems } = readHttp(lines)
  assert.deepEqual(problems, [])
  assert.ok(http)
  return http
}

/** Checks that there is exactly this problem. */
const hasProblem = (lines: string, problem: RegExp): void => {
  const { problems } = readHttp(lines)
  assert.equal(problems.length, 1, `${lines}: ${problems.join('\n') || 'no problem found'}`)
  assert.match(problems[0] ?? '', problem)
}

test('an empty http_listen disables HTTP, even if other keys are set', () => {
  assert.deepEqual(readHttp(`http_listen = ""\n${TOKEN}`), { http: null, problems: [], warnings: [] })
})

test('without http_listen, HTTP is off and every other HTTP key is an error', () => {
  assert.deepEqual(readHttp(''), { http: null, problems: [], warnings: [] })
  const values = {
    http_wildcard: 'true',
    token_file: '"/t"',
    allowed_hosts: '["a"]',
    allowed_origins: '[]',
    tls_cert: '"/c"',
    tls_key: '"/k"',
    tls_client_ca: '"/a"',
  }
  assert.deepEqual(['http_listen', ...Object.keys(values)].toSorted(), [...HTTP_KEYS].toSorted())
  for (const [key, value] of Object.entries(values))
    hasProblem(`${key} = ${value}`, new RegExp(`^a:2: server\\.${key}: has no effect without http_listen$`))
})

test('an address with a port and a token file are sufficient', () => {
  const { http, problems, warnings } = readHttp(LOCAL)
  assert.deepEqual(http, {
    listen: { kind: 'tcp', host: '127.0.0.1', port: 7680 },
    token_file: '/run/rexd/token',
    allowed_hosts: [],
    allowed_origins: [],
    tls: null,
  })
  assert.deepEqual([problems, warnings], [[], []])
  assert.deepEqual(httpOf(`http_listen = "[::1]:65535"\n${TOKEN}`).listen, { kind: 'tcp', host: '::1', port: 65_535 })
  assert.deepEqual(httpOf(`http_listen = "127.0.0.1:0"\n${TOKEN}`).listen, { kind: 'tcp', host: '127.0.0.1', port: 0 })
})

test('an invalid address or one without a port is refused', () => {
  const wrong = [
    '7680',
    ':7680',
    '127.0.0.1',
    '127.0.0.1:',
    '127.0.0.1:65536',
    '127.0.0.1:-1',
    '127.0.0.1:1.5',
    '127.1:80',
    '256.0.0.1:80',
    '0x7f.1:80',
  ]
  const others = [
    'localhost:7680',
    'example.org:80',
    '::1:7680',
    '[::1]',
    '[::1%lo]:80',
    '[zz::]:80',
    'http://127.0.0.1:80',
    ' 127.0.0.1:80',
    '127.0.0.1:80 ',
    '*:80',
  ]
  for (const text of [...wrong, ...others])
    hasProblem(
      `http_listen = ${JSON.stringify(text)}\n${TOKEN}`,
      /^a:2: server\.http_listen: ".*" is not an address and a port such as "127\.0\.0\.1:7680"$/,
    )
  for (const value of ['7680', 'true', '["127.0.0.1:1"]'])
    hasProblem(`http_listen = ${value}\n${TOKEN}`, /http_listen: must be a string, not /)
  hasProblem(`http_listen = " "\n${TOKEN}`, /is not an address and a port/)
})

test('HTTP without a token file is refused', () => {
  hasProblem('http_listen = "127.0.0.1:7680"', /server\.token_file: is required with http_listen: every client needs a token$/)
  hasProblem('http_listen = "127.0.0.1:7680"\ntoken_file = "token"', /^a:3: server\.token_file: "token" must be an absolute path$/)
  for (const value of ['""', '1', '["/t"]'])
    hasProblem(`http_listen = "127.0.0.1:7680"\ntoken_file = ${value}`, /^a:3: server\.token_file: (is empty|must be a string)/)
})

test('a wildcard address needs http_wildcard = true', () => {
  for (const listen of ['0.0.0.0:7680', '[::]:7680']) {
    const lines = `http_listen = "${listen}"\n${TOKEN}`
    hasProblem(lines, /http_listen: (0\.0\.0\.0|::) listens on all networks of this machine: .*http_wildcard = true$/)
    hasProblem(`${lines}http_wildcard = false`, /listens on all networks/)
    assert.deepEqual(readHttp(`${lines}http_wildcard = true`).problems, [])
  }
  hasProblem(`${LOCAL}http_wildcard = 1`, /http_wildcard: must be true or false, not 1$/)
  assert.deepEqual(readHttp(`${LOCAL}http_wildcard = true`).problems, [])
})

test('every spelling of a wildcard address needs http_wildcard = true', () => {
  for (const address of ['::0', '0::', '0:0:0:0:0:0:0:0', '0000::0000', '::0.0.0.0', '::ffff:0.0.0.0', '::ffff:0:0'])
    hasProblem(`http_listen = "[${address}]:7680"\n${TOKEN}`, /http_wildcard = true$/)
})

test('an address on a network gives a warning if TLS is not configured', () => {
  const warned =
    /^a:2: server\.http_listen: .* is reachable over a network, where others can read the token without TLS: set tls_cert and tls_key$/
  for (const listen of ['192.168.1.5:1', '10.0.0.1:1', '[fe80::1]:1', '128.0.0.1:1']) {
    const { problems, warnings } = readHttp(`http_listen = "${listen}"\n${TOKEN}`)
    assert.deepEqual([problems, warnings.length], [[], 1], listen)
    assert.match(warnings[0] ?? '', warned)
    assert.deepEqual(readHttp(`http_listen = "${listen}"\n${TOKEN}tls_cert = "/c"\ntls_key = "/k"`).warnings, [])
  }
  for (const listen of ['127.0.0.1:1', '127.255.0.9:1', '[::1]:1'])
    assert.deepEqual(readHttp(`http_listen = "${listen}"\n${TOKEN}`).warnings, [])
  assert.equal(readHttp(`http_listen = "0.0.0.0:1"\nhttp_wildcard = true\n${TOKEN}`).warnings.length, 1)
})

test('tls_cert and tls_key need each other, and tls_client_ca needs both', () => {
  assert.deepEqual(httpOf(`${LOCAL}tls_cert = "/c"\ntls_key = "/k"`).tls, { cert: '/c', key: '/k', client_ca: null })
  assert.deepEqual(httpOf(`${LOCAL}tls_cert = "/c"\ntls_key = "/k"\ntls_client_ca = "/a"`).tls, { cert: '/c', key: '/k', client_ca: '/a' })
  for (const one of ['tls_cert = "/c"', 'tls_key = "/k"'])
    hasProblem(LOCAL + one, /server\.tls_cert: tls_cert and tls_key belong together$/)
  hasProblem(`${LOCAL}tls_client_ca = "/a"`, /tls_client_ca: has no effect without tls_cert and tls_key$/)
  for (const key of ['tls_cert', 'tls_key', 'tls_client_ca']) {
    const others = { tls_cert: '"/c"', tls_key: '"/k"', tls_client_ca: '"/a"', [key]: '"pem"' }
    const lines = Object.entries(others).map(([name, value]) => `${name} = ${value}\n`)
    hasProblem(LOCAL + lines.join(''), new RegExp(`server\\.${key}: "pem" must be an absolute path$`))
  }
})

test('allowed hosts and origins are lists of names, stored in lower case', () => {
  const { allowed_hosts, allowed_origins } = httpOf(
    `${LOCAL}allowed_hosts = ["server-a:7680"]\nallowed_origins = ["https://UI.Example.org"]`,
  )
  assert.deepEqual([allowed_hosts, allowed_origins], [['server-a:7680'], ['https://ui.example.org']])
  for (const key of ['allowed_hosts', 'allowed_origins'])
    for (const value of ['"a"', '[1]', 'true', '{ a = "b" }'])
      hasProblem(`${LOCAL}${key} = ${value}`, new RegExp(`server\\.${key}: must be a list of strings`))
})

test('an allowed host with capitals is stored in lower case', () => {
  assert.deepEqual(httpOf(`${LOCAL}allowed_hosts = ["Server-A:7680"]`).allowed_hosts, ['server-a:7680'])
})

test('the path of a Unix socket must be absolute and not too long', () => {
  assert.deepEqual(httpOf(`http_listen = "unix:/run/rexd/rexd.sock"\n${TOKEN}`).listen, { kind: 'unix', path: '/run/rexd/rexd.sock' })
  assert.deepEqual(readHttp(`http_listen = "unix:/run/rexd/rexd.sock"\n${TOKEN}`).warnings, [])
  for (const text of ['unix:', 'unix:rexd.sock', 'unix:./rexd.sock'])
    hasProblem(
      `http_listen = "${text}"\n${TOKEN}`,
      /^a:2: server\.http_listen: ".*" must be an absolute path, as in "unix:\/run\/rexd\/rexd\.sock"$/,
    )
  for (const text of ['UNIX:/run/rexd.sock', '/run/rexd.sock', 'unix//run/rexd.sock'])
    hasProblem(`http_listen = "${text}"\n${TOKEN}`, /is not an address and a port/)
  const room = process.platform === 'darwin' ? 103 : 107
  const long = `/${'é'.repeat(room / 2)}`
  assert.equal(Buffer.byteLength(long), room)
  assert.equal(httpOf(`http_listen = "unix:${long}"\n${TOKEN}`).listen.kind, 'unix')
  hasProblem(
    `http_listen = "unix:${long}x"\n${TOKEN}`,
    new RegExp(`http_listen: the path of a socket has at most ${room} bytes, not ${room + 1};`),
  )
  hasProblem('http_listen = "unix:/run/rexd/rexd.sock"', /token_file: is required with http_listen/)
})

test('network settings are refused for a Unix socket', () => {
  const values = { http_wildcard: 'true', tls_cert: '"/c"', tls_key: '"/k"', tls_client_ca: '"/a"' }
  for (const [key, value] of Object.entries(values))
    hasProblem(
      `http_listen = "unix:/run/rexd.sock"\n${TOKEN}${key} = ${value}`,
      new RegExp(`^a:4: server\\.${key}: has no effect for a Unix socket`),
    )
})

test('a pipe in place of a certificate is refused with its key, without waiting for a writer', async (t) => {
  const cert = join(await tempDir(t), 'cert')
  execFileSync('mkfifo', [cert])
  const http = httpOf(`${LOCAL}tls_cert = "${cert}"\ntls_key = "${cert}"`)
  await assert.rejects(readTlsMaterial(http), /server\.tls_cert: \S+: is not a regular file/)
})
