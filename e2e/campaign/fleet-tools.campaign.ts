import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { release, tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, beforeEach, suite, test } from 'node:test'

import { SHOWN_SIGNER, SHOWN_TOKEN, snippetOf, withValue } from '../../deploy/packages/page-snippets.mjs'
import type { EnrolKeysAnswer } from '../../src/protocol/api/enrolment.ts'
import { DIST, MeshOfDaemons, type TestDaemon, until } from '../../test/support/mesh-of-daemons.ts'
import { makeOwnDeb } from './deb-on-systemd.ts'
import { DebianHost, cannotBoot } from './debian-host.ts'

// The examples of docs/enrol.md and docs/fleet-acls.md for systemd, cloud-init, Ansible and Debian packages. They are read from the pages
// and run on a Debian with systemd and the x0x package. The operator's daemon uses the network of that host. `npm run packages -- --check`
// tests the examples for Docker and Kubernetes.

const [ENROL, ACLS] = ['enrol.md', 'fleet-acls.md']
const PLAY = '/root/play'
const CONFIG = '/etc/x0x/config.toml'
const SEED = '/var/lib/cloud/seed/nocloud'
/** Makes cloud-init read the user data of this host from a directory, and run only the modules that the examples need. */
const CLOUD = `datasource_list: [NoCloud]
network: { config: disabled }
cloud_init_modules: [write_files]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts_user]
`
const UNTOUCHED = '/root/x0x.as-installed'

const skip = cannotBoot()
const dir = skip === false ? mkdtempSync(join(tmpdir(), 'x0x-fleet-tools-')) : ''
let host: DebianHost
let mesh: MeshOfDaemons
let ops: TestDaemon

/** Output of the package's daemon for its operator on the host. */
const x0x = (...argv: readonly string[]): string => host.must('runuser', '-u', 'x0x', '--', 'x0x', '--data-dir', '/var/lib/x0x', ...argv)

/** Runs lines of a page in the directory with the files that they name. */
const runLines = (lines: string): string => host.must('bash', '-ec', `cd ${PLAY}\n${lines}`)

const cloudInit = (userData: string): void => {
  host.must('rm', '-rf', '/var/lib/cloud')
  host.must('mkdir', '-p', SEED)
  host.write(`${SEED}/user-data`, userData)
  host.write(`${SEED}/meta-data`, 'instance-id: host\n')
  host.must('cloud-init', 'schema', '--config-file', `${SEED}/user-data`)
  host.must('cloud-init', 'init')
  for (const mode of ['config', 'final']) host.must('cloud-init', 'modules', `--mode=${mode}`)
}

/** Runs a playbook of a page on this host. */
const ansible = (playbook: string): ReturnType<DebianHost['run']> => {
  host.write(`${PLAY}/playbook.yaml`, playbook)
  const command = `cd ${PLAY} && HOME=/root LC_ALL=C.UTF-8 ansible-playbook --connection local --inventory web, playbook.yaml`
  return host.run('sh', ['-c', command])
}

const played = (playbook: string): string => {
  const { status, stdout, stderr } = ansible(playbook)
  assert.equal(status, 0, `${stdout}${stderr}${host.journal('-u', 'x0xd', '-n', '20')}`)
  return stdout
}

/** Resets the host to the state after the package installation, with an empty directory for the reader. */
const asInstalled = (): void => {
  const script = `systemctl disable --now x0xd
rm -rf /etc/systemd/system/x0xd.service.d /etc/credstore /etc/x0x ${PLAY}
find /var/lib/x0x -mindepth 1 -delete
cp -a ${UNTOUCHED} /etc/x0x
mkdir ${PLAY}
systemctl daemon-reload
systemctl reset-failed x0xd || true`
  host.must('sh', '-ec', script)
}

before(async () => {
  if (skip !== false) return
  const packages = ['ansible-core', 'cloud-init', 'sudo']
  const [made, deb] = await Promise.all([DebianHost.make(join(dir, 'root'), packages), makeOwnDeb(dir)])
  host = made
  host.write('/etc/cloud/cloud-init.disabled', '')
  host.write('/etc/cloud/cloud.cfg.d/99-x0x.cfg', CLOUD)
  await host.boot()
  host.must('dpkg', '--install', host.receive(deb))
  host.must('cp', '-a', '/etc/x0x', UNTOUCHED)
  mesh = await MeshOfDaemons.create()
  ops = mesh.add('ops', { program: [...host.onNetwork, process.execPath, join(DIST, 'x0xd.mjs')] })
  await ops.start()
})
after(async () => {
  await mesh?.stop()
  await host?.cutPower()
  rmSync(dir, { recursive: true, force: true })
})

/** Checks the output that the operator gets from a command on the host. */
const says = async (name: string, argv: readonly string[], stdout: string): Promise<void> => {
  const ran = await ops.exec(name, argv)
  assert.equal(ran.stdout.toString(), stdout, ran.stderr + host.journal('-u', 'x0xd', '-n', '20'))
}

suite('a host enrols by the examples of the page', { skip, timeout: 600_000 }, () => {
  let allow: string
  beforeEach(async () => {
    asInstalled()
    allow = join(mesh.root, 'web.toml')
    await writeFile(allow, snippetOf(ENROL, 'Create a token', 'toml'))
  })

  const tokenFor = async (name: string): Promise<string> =>
    (await ops.json<{ token: string }>('enrol', 'create', '--name', name, '--allow', allow)).token

  const enrolled = async (name: string): Promise<void> => {
    const isThere = async (): Promise<boolean> => {
      const { keys } = await ops.json<EnrolKeysAnswer>('enrol', 'list')
      return keys.some(({ hosts }) => hosts.some((one) => one.name === name && one.confirmed))
    }
    await until(`${name} is enrolled`, isThere).catch((error: Error) => {
      throw new Error(`${error.message}: ${host.journal('-u', 'x0xd', '-n', '20')}`, { cause: error })
    })
    const { contacts } = await ops.json<{ contacts: { name: string; trust: string }[] }>('contacts', 'list')
    assert.equal(contacts.find((one) => one.name === name)?.trust, 'trusted')
    await says(name, ['uname', '-r'], `${release()}\n`)
    assert.equal(host.must('systemctl', 'is-enabled', 'x0xd'), 'enabled\n')
  }

  const [SYSTEMD, DROP_IN] = ['systemd and the Debian package', 'enrol.conf']

  test('systemd: the drop-in passes the token as a credential, and later starts need no token', async () => {
    host.write(`${PLAY}/web.token`, await tokenFor('web1'))
    host.write(`${PLAY}/${DROP_IN}`, snippetOf(ENROL, SYSTEMD, 'ini'))
    runLines(snippetOf(ENROL, SYSTEMD, 'sh'))
    await enrolled('web1')
    host.must('rm', '/etc/credstore/x0x-enrol')
    host.must('systemctl', 'restart', 'x0xd')
    await says('web1', ['uname', '-r'], `${release()}\n`)
  })

  test('cloud-init: the user data is valid and enrols the host', async () => {
    cloudInit(withValue(snippetOf(ENROL, 'cloud-init', 'yaml'), SHOWN_TOKEN, await tokenFor('web2')))
    await enrolled('web2')
  })

  test('Ansible: the playbook enrols the host, and a second run changes nothing', async () => {
    host.write(`${PLAY}/web.token`, await tokenFor('web3'))
    host.write(`${PLAY}/${DROP_IN}`, snippetOf(ENROL, SYSTEMD, 'ini'))
    const playbook = snippetOf(ENROL, 'Ansible', 'yaml')
    assert.match(played(playbook), /failed=0/)
    await enrolled('web3')
    assert.match(played(playbook), /changed=0 .*failed=0/)
  })
})

suite('a host takes a signed ACL by the examples of the page', { skip, timeout: 300_000 }, () => {
  before(async () => {
    asInstalled()
    host.must('systemctl', 'start', 'x0xd')
    x0x('contacts', 'import', (await ops.ok('card')).trim(), '--as', 'ops')
    x0x('contacts', 'trust', 'ops', 'trusted')
    x0x('contacts', 'pin', 'ops', ops.machineId)
    await ops.ok('contacts', 'import', x0x('card').trim(), '--as', 'web')
  })

  /** An ACL that allows the operator this command, signed by the operator. */
  const signed = async (version: number, argv: readonly string[]): Promise<string> => {
    const file = join(mesh.root, `${version}.toml`)
    const ids = `agent_id = "${ops.agentId}"\nmachine_id = "${ops.machineId}"\n`
    const head = '[exec]\nenabled = true\naudit_log_path = "/var/lib/x0x/exec.log"\ndefault_cwd = "/"\n'
    await writeFile(file, `${head}[[exec.allow]]\n${ids}[[exec.allow.commands]]\nargv = ${JSON.stringify(argv)}\n`)
    const out = join(mesh.root, 'web.acl')
    await ops.ok('acl', 'sign', file, '--version', String(version), '--out', out)
    return readFileSync(out, 'utf8')
  }

  const inForce = (version: number): void => {
    const { acl_summary } = JSON.parse(x0x('--json', 'diagnostics', 'exec')) as { acl_summary: { signature: unknown } }
    assert.deepEqual(acl_summary.signature, { version, signer: ops.agentId })
  }

  test('cloud-init: the user data is valid, and its ACL takes effect', async () => {
    const acl = await signed(1, ['uname', '-r'])
    const shown = '      # x0x-acl-bundle v1\n      # …\n'
    const data = withValue(snippetOf(ACLS, 'cloud-init', 'yaml'), SHOWN_SIGNER, ops.agentId)
    cloudInit(withValue(data, shown, acl.replaceAll(/^(?=.)/gm, '      ')))
    assert.equal(host.read('/etc/x0x/exec-acl.toml'), acl)
    await says('web', ['uname', '-r'], `${release()}\n`)
    inForce(1)
    runLines(snippetOf(ACLS, 'Put a new version into force', 'sh'))
    await says('web', ['uname', '-r'], `${release()}\n`)
  })

  test('Ansible: the playbook installs the next version of the ACL, and refuses an altered file', async () => {
    const acl = await signed(2, ['uname', '-s'])
    const playbook = withValue(snippetOf(ACLS, 'Ansible', 'yaml'), SHOWN_SIGNER, ops.agentId)
    host.write(`${PLAY}/web.acl`, acl.replace('"-s"', '"-a"'))
    const altered = ansible(playbook)
    assert.notEqual(altered.status, 0)
    assert.match(altered.stdout + altered.stderr, /the signature does not fit/)
    inForce(1)
    host.write(`${PLAY}/web.acl`, acl)
    played(playbook)
    await says('web', ['uname', '-s'], 'Linux\n')
    inForce(2)
  })

  test('Debian package: a package of the reader installs the next version of the ACL', async () => {
    host.must('mkdir', '-p', `${PLAY}/web-acl/DEBIAN`)
    host.write(`${PLAY}/web-acl/DEBIAN/control`, snippetOf(ACLS, 'Debian package', 'text'))
    host.write(`${PLAY}/web.acl`, await signed(3, ['uname', '-m']))
    runLines(snippetOf(ACLS, 'Debian package', 'sh'))
    const page = readFileSync(join(import.meta.dirname, '../../docs', ACLS), 'utf8')
    const setting = /`(exec_acl = "[^"]+")` in `config\.toml`/.exec(page)?.[1] ?? ''
    host.write(CONFIG, `${host.read(CONFIG).replace(/^exec_acl = .*$/m, '')}${setting}\n`)
    runLines(snippetOf(ACLS, 'Debian package', 'sh', 1))
    await says('web', ['uname', '-m'], host.must('uname', '-m'))
    inForce(3)
  })
})
