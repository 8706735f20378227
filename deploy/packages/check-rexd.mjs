// Copies the one-file `rexd` to a host without Node.js, and uses it there.
import assert from 'node:assert/strict'
import { chmodSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

import { packageRoot } from '../runtime.mjs'
import { bare, onHost, started } from './check-host.mjs'
import { OUT, ran } from './place.mjs'

const CONFIGURATION = `[server]
http_listen = "127.0.0.1:0"
token_file = "/etc/rexd/secret/token"
tls_cert = "/etc/rexd/cert.pem"
tls_key = "/etc/rexd/key.pem"
[security]
allow_pty = true
[[security.allowed_roots]]
path = "/srv"
[audit]
path = "/var/lib/rexd/audit.log"
`
const READY = /^rexd \S+ ready: (?<url>https:[^,]+),/

const certificate = (directory) => {
  const names = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1']
  const made = ['-keyout', join(directory, 'key.pem'), '-out', join(directory, 'cert.pem')]
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
  return ran('openssl', ['req', '-x509', ...key, '-days', '1', ...names, ...made])
}

const used = async (session) => {
  const { exitCode, stdoutText } = await session.run(['/bin/cat'], { stdin: 'one file' })
  assert.deepEqual([exitCode, stdoutText], [0, 'one file'])
  await session.files.write('note', Buffer.from('kept'))
  assert.equal(await session.files.readText('note'), 'kept')
}

const onTerminal = async (session) => {
  const terminal = await session.openTerminal(['/bin/sh', '-c', 'tty; stty size'], { cols: 91, rows: 17 })
  let shown = ''
  for await (const data of terminal) shown += Buffer.from(data).toString()
  assert.match(shown, /^\/dev\/pts\/\d+\r\n17 91\r\n$/)
}

const until = async (holds) => {
  const end = performance.now() + 30_000
  while (!(await holds())) {
    assert.ok(performance.now() < end, 'it takes too long')
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** Checks that a killed server leaves no running process. */
const killed = async (session, { child }) => {
  const command = ['/bin/sleep', `86399.${process.pid}`]
  const isThere = async () => (await ran('ps', ['-eo', 'args'])).split('\n').includes(command.join(' '))
  await session.exec(command)
  await until(isThere)
  child.kill('SIGKILL')
  await until(async () => !(await isThere()))
}

/** `root` is the directory of a host without a package of x0x. */
export const checkOneFileRexd = async (root, daemons) => {
  const { connect, stdio, webSocket } = await import(pathToFileURL(join(packageRoot, 'dist', 'client.mjs')).href)
  const file = join(root, 'usr/local/bin/rexd')
  copyFileSync(join(OUT, `rexd-linux-${process.arch}`), file)
  chmodSync(file, 0o755)
  mkdirSync(join(root, 'etc/rexd'))
  writeFileSync(join(root, 'etc/rexd/config.toml'), CONFIGURATION, { mode: 0o600 })
  await certificate(join(root, 'etc/rexd'))
  const env = bare('/root')
  const host = (...words) => [...onHost(root), 'rexd', ...words]
  const [program, ...words] = host('exec', '--', '/bin/cat', '/etc/debian_version')
  assert.equal(await ran(program, words, { env }), readFileSync(join(root, 'etc/debian_version'), 'utf8'))
  const client = await connect({ transport: stdio({ command: ['env', '-i', `PATH=${env.PATH}`, ...host('--stdio')] }) })
  const session = await client.open({ clientName: 'check' })
  await used(session)
  await onTerminal(session)
  await client.close()
  const server = await started(daemons, host('--http'), { env }, READY)
  const token = readFileSync(join(root, 'etc/rexd/secret/token'), 'utf8').trim()
  const tls = { ca: readFileSync(join(root, 'etc/rexd/cert.pem'), 'utf8') }
  const far = await connect({ transport: webSocket({ url: server.url, token, tls }) })
  const other = await far.open({ clientName: 'check' })
  await used(other)
  await killed(other, server)
  await far.close()
}
