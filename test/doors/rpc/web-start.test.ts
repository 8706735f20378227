import assert from 'node:assert/strict'
import { chmod, readFile, stat, writeFile } from 'node:fs/promises'
import { networkInterfaces } from 'node:os'
import { dirname, join } from 'node:path'
import { connect as connectTls, type ConnectionOptions } from 'node:tls'
import { test } from 'node:test'

import { certificate, withoutOpenssl } from '../../support/certificates.ts'
import { ask, connect, post } from '../../support/rexd-callers.ts'
import { rexdPlace, runRexd, startRexd, type RexdPlace, type RexdServer, type RexdSettings } from '../../support/rexd-server.ts'

// Listening addresses and tokens of the real program, and configurations that it refuses.

const TIMEOUT = { timeout: 30_000 }
const TLS = { ...TIMEOUT, skip: withoutOpenssl !== '' }
const NOBODY = { jsonrpc: '2.0', id: 1, method: 'session.info', params: { session_id: 'none' } }

const hasIpv6 = Object.values(networkInterfaces()).some((addresses) => addresses?.some(({ address }) => address === '::1'))

/** The findings of `--check` for a configuration, and its exit status. */
const judged = async (t: Parameters<typeof rexdPlace>[0], settings: RexdSettings) => {
  const { config } = await rexdPlace(t, settings)
  const checked = await runRexd('--check', '--json', '--config', config)
  const findings = (JSON.parse(checked.stdout) as { findings: { level: string; text: string }[] }).findings
  return { config, status: checked.status, text: JSON.stringify(findings) }
}

test('a wildcard address requires http_wildcard = true', TIMEOUT, async (t) => {
  for (const listen of ['[0:0:0:0:0:0:0:0]:0', '[::0]:0', '[::ffff:0.0.0.0]:0', '0.0.0.0:0', '[::]:0']) {
    const { config, status, text } = await judged(t, { listen })
    assert.equal(status, 2, `${listen}: ${text}`)
    assert.match(text, /http_wildcard/)
    if (!['0.0.0.0:0', '[::]:0'].includes(listen)) continue
    const started = await runRexd('--http', '--config', config)
    assert.deepEqual([started.status, started.stdout], [2, ''], listen)
    assert.match(started.stderr, /^rexd: .*config\.toml:2: server\.http_listen: .*http_wildcard = true/)
  }
  const { status, text } = await judged(t, { listen: '0.0.0.0:0', server: 'http_wildcard = true' })
  assert.deepEqual([status, /others can read the token without TLS/.test(text)], [0, true], text)
})

test('the server listens on the configured address, including IPv6, and prints its URL', TIMEOUT, async (t) => {
  for (const [listen, host] of [
    ['127.0.0.1:0', '127.0.0.1'],
    ['[::1]:0', '[::1]'],
  ] as const) {
    if (host === '[::1]' && !hasIpv6) continue
    const server = await startRexd(t, { listen })
    assert.equal(server.url, `http://${host}:${server.port}`)
    assert.equal((await ask(server, { body: NOBODY })).status, 200)
    const taken = await rexdPlace(t, { listen: `${host}:${server.port}` })
    const second = await runRexd('--http', '--config', taken.config)
    assert.deepEqual([second.status, second.stdout], [1, ''])
    assert.match(second.stderr, /another program uses/)
  }
})

const modeOf = async (path: string): Promise<string> => ((await stat(path)).mode & 0o777).toString(8)

test('the token file is private and permanent, and the server refuses one that other users can access', TIMEOUT, async (t) => {
  const server = await startRexd(t)
  const { tokenFile, config, token } = server
  const secret = dirname(tokenFile)
  assert.deepEqual([await modeOf(tokenFile), await modeOf(secret)], ['600', '700'])
  assert.match(await readFile(tokenFile, 'latin1'), /^[0-9a-f]{64}\n$/)
  assert.ok(!server.ready.includes(token) && !server.said().includes(token), 'it is in its file and nowhere else')
  assert.deepEqual(await server.stop(), [143, null])
  assert.equal((await startRexd(t, {}, server)).token, token)
  for (const [path, loose, mended] of [
    [tokenFile, 0o644, 0o600],
    [tokenFile, 0o620, 0o600],
    [secret, 0o755, 0o700],
    [secret, 0o770, 0o700],
  ] as const) {
    await chmod(path, loose)
    const { status, stdout, stderr } = await runRexd('--http', '--config', config)
    assert.deepEqual([status, stdout], [2, ''], stderr)
    assert.match(stderr, /so other users can access it; fix it with: chmod/)
    await chmod(path, mended)
  }
  for (const text of ['', 'x\n', token.slice(1), `${token}\n\n`, `${token.toUpperCase()}\n`]) {
    await writeFile(tokenFile, text)
    const { status, stderr } = await runRexd('--http', '--config', config)
    assert.equal(status, 2, stderr)
    assert.equal(await readFile(tokenFile, 'latin1'), text, 'what is there is never replaced')
  }
})

/** A server with a certificate, and the CA that can sign client certificates. */
const startTls = async (
  t: Parameters<typeof rexdPlace>[0],
  mutual: boolean,
): Promise<{ server: RexdServer; ca: string; place: RexdPlace }> => {
  const place = await rexdPlace(t)
  const ca = await certificate(place.dir, 'ca')
  const own = await certificate(place.dir, 'server', { issuer: ca, extensions: ['subjectAltName=IP:127.0.0.1'] })
  const keys = [`tls_cert = "${own.certFile}"`, `tls_key = "${own.keyFile}"`, ...(mutual ? [`tls_client_ca = "${ca.certFile}"`] : [])]
  await writeFile(place.config, (await readFile(place.config, 'utf8')).replace('[server]', `[server]\n${keys.join('\n')}`))
  const server = await startRexd(t, {}, place)
  assert.match(server.url, /^https:/)
  return { server, ca: ca.cert, place }
}

/** Connects and returns the agreed TLS version, or the error. */
const handshake = async ({ port }: RexdServer, options: ConnectionOptions): Promise<string> => {
  const socket = connectTls({ host: '127.0.0.1', port, ...options })
  try {
    return await new Promise<string>((resolve) => {
      socket.once('error', (error) => resolve(error.message))
      socket.once('secureConnect', () => resolve(socket.getProtocol() ?? ''))
    })
  } finally {
    socket.destroy()
  }
}

test(`with a certificate the server speaks only TLS 1.3 and still requires the token${withoutOpenssl}`, TLS, async (t) => {
  const { server, ca } = await startTls(t, false)
  assert.equal((await ask(server, { body: NOBODY, ca })).status, 200)
  assert.equal((await ask(server, { body: NOBODY, ca, token: 'x' })).status, 401)
  assert.equal(
    (
      await ask(server, {
        body: NOBODY,
        ca,
        checkServerIdentity: () => undefined,
        headers: { host: `evil.example:${server.port}` },
      })
    ).status,
    403,
  )
  assert.equal((await ask(server, { body: NOBODY, ca, headers: { origin: 'https://evil.example' } })).status, 403)
  const caller = await connect(t, server, { ca })
  assert.match((await caller.call('session.open', { client_name: 'a' })).session_id, /^s_/)
  assert.equal(await handshake(server, { ca }), 'TLSv1.3')
  assert.match(await handshake(server, { ca, maxVersion: 'TLSv1.2' }), /protocol version/)
  await assert.rejects(ask({ ...server, url: server.url.replace('https', 'http') }, { body: NOBODY }))
  await assert.rejects(post(server, 'session.info', {}), 'who does not trust its certificate does not talk to it')
})

test(`with tls_client_ca a client needs both a certificate of that CA and the token${withoutOpenssl}`, TLS, async (t) => {
  const { server, ca, place } = await startTls(t, true)
  const issuer = { certFile: join(place.dir, 'ca.crt'), keyFile: join(place.dir, 'ca.key'), cert: ca, key: '' }
  const client = await certificate(place.dir, 'client', { issuer })
  const foreign = await certificate(place.dir, 'foreign')
  const good = { ca, cert: client.cert, key: client.key }
  assert.equal((await ask(server, { body: NOBODY, ...good })).status, 200)
  assert.equal((await ask(server, { body: NOBODY, token: null, ...good })).status, 401)
  const caller = await connect(t, server, good)
  assert.match((await caller.call('session.open', { client_name: 'a' })).session_id, /^s_/)
  const refused = [{ ca }, { ca, cert: foreign.cert, key: foreign.key }]
  for (const options of refused) {
    await assert.rejects(ask(server, { body: NOBODY, ...options }), { code: /ERR_SSL|ECONNRESET|EPIPE/ })
    await assert.rejects(connect(t, server, options))
  }
})
