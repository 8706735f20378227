// Runs the examples of docs/enrol.md and docs/fleet-acls.md for Docker and Kubernetes as processes in the files of an image. Each host
// becomes a contact of an operator in another container, and the operator runs a command on it. The examples for other tools are tested in
// e2e/campaign. podman cannot run them. crun refuses hosts with both versions of control groups, and `podman kube play` 4.3 crashes on a
// Secret as a volume.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { release } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'

import { X0XD_READY } from './check-host.mjs'
import { DAEMON_SET, documentsOf, startPod } from './check-kubernetes.mjs'
import { Container, Network } from './container.mjs'
import { SHOWN_SIGNER, snippetOf, withValue } from './page-snippets.mjs'
import { ran } from './place.mjs'

const [ENROL, ACLS] = ['enrol.md', 'fleet-acls.md']
const DATA = '/var/lib/x0x'
const NODE = 2

/** The reason why the Kubernetes examples cannot run on this machine, or undefined. */
const cannotKustomize = () =>
  spawnSync('kubectl', ['kustomize', '--help']).status === 0 ? undefined : 'needs a kubectl that has `kustomize`'

/** Makes a directory for each volume of an image, with the files of the image. */
const volumesOf = async (image, place, name) => {
  const mounts = Object.keys(image.config.Volumes).map(async (to) => {
    const from = join(place, `${name}${to.replaceAll('/', '-')}`)
    await ran('cp', ['-a', join(image.root, to), from])
    return { from, to }
  })
  return Promise.all(mounts)
}

/** The daemon of an operator in a container. */
class Operator {
  static async start(image, { place, network, daemons }) {
    const ops = new Operator()
    const mounts = await volumesOf(image, place, 'ops')
    ops.data = mounts.find(({ to }) => to === DATA).from
    ops.container = new Container(image, { name: 'ops', network, tmpfs: ['/tmp'], mounts, env: { X0X_MDNS: 'false' } })
    await ops.container.start(daemons, X0XD_READY)
    return ops
  }

  x0x(...argv) {
    return this.container.exec('x0x', ...argv)
  }

  /** Returns a token for a host of this name, with the ACL entries of the page. */
  async tokenFor(name) {
    writeFileSync(join(this.data, 'web.toml'), snippetOf(ENROL, 'Create a token', 'toml'))
    return (await this.x0x('enrol', 'create', '--name', name, '--allow', `${DATA}/web.toml`)).trim()
  }

  async hasEnrolled(name) {
    const { keys } = JSON.parse(await this.x0x('enrol', 'list', '--json'))
    const hosts = keys.flatMap((key) => key.hosts).filter((host) => host.name === name)
    assert.deepEqual(
      hosts.map(({ confirmed }) => confirmed),
      [true],
      `${name} was enrolled once`,
    )
    const { contacts } = JSON.parse(await this.x0x('contacts', 'list', '--json'))
    assert.equal(contacts.find((contact) => contact.name === name)?.trust, 'trusted')
    assert.equal(await this.x0x('exec', name, '--', 'uname', '-r'), `${release()}\n`)
  }

  /** Returns a signed ACL that allows the operator this command. */
  async signed(argv) {
    const { agent_id, machine_id } = JSON.parse(await this.x0x('id', '--json'))
    const head = '[exec]\nenabled = true\naudit_log_path = "/var/log/x0x/exec.log"\ndefault_cwd = "/"\n'
    const entry = `[[exec.allow]]\nagent_id = "${agent_id}"\nmachine_id = "${machine_id}"\n[[exec.allow.commands]]\nargv = ${JSON.stringify(argv)}\n`
    writeFileSync(join(this.data, 'acl.toml'), head + entry)
    await this.x0x('acl', 'sign', `${DATA}/acl.toml`, '--out', `${DATA}/web.acl`)
    return { signer: agent_id, acl: readFileSync(join(this.data, 'web.acl'), 'utf8') }
  }
}

/** Runs shell lines in this directory. Returns the arguments of each call of docker. */
const dockerCalls = async (lines, cwd) => {
  const script = `docker() { printf '%s\\0' "$@" $'\\x1e'; }\n${lines}`
  const calls = (await ran('bash', ['-ec', script], { cwd })).split('\0\x1e\0').slice(0, -1)
  return calls.map((call) => call.split('\0'))
}

/** The options of `docker run` that this check applies. It fails for any other option. */
const RUN_OPTIONS = {
  detach: { type: 'boolean', short: 'd' },
  env: { type: 'string', short: 'e', multiple: true },
  volume: { type: 'string', short: 'v', multiple: true },
}

const checkDocker = async (image, ops, { place, network, daemons }) => {
  const files = join(place, 'docker')
  mkdirSync(files)
  writeFileSync(join(files, 'web.token'), `${await ops.tokenFor('web')}\n`)
  writeFileSync(join(files, 'Dockerfile'), snippetOf(ENROL, 'Docker', 'dockerfile'))
  const [build, run] = await dockerCalls(snippetOf(ENROL, 'Docker', 'sh'), files)
  assert.deepEqual(build, ['build', '-t', 'web', '.'])
  const derived = await image.derive(files, 'web')
  const { values, positionals } = parseArgs({ args: run, options: RUN_OPTIONS, allowPositionals: true })
  assert.deepEqual(positionals, ['run', 'web'])
  const mounts = await volumesOf(derived, place, 'web')
  assert.deepEqual(values.volume, [`x0x:${DATA}`], 'it keeps the volume of the data')
  const env = Object.fromEntries(values.env.map((pair) => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]))
  const web = new Container(derived, { name: 'web', network, tmpfs: ['/tmp'], mounts, env })
  await web.start(daemons, X0XD_READY)
  await ops.hasEnrolled('web')
  // Starts the container again with the same token, as an engine does.
  assert.equal(await web.stop(), 0)
  await web.start(daemons, X0XD_READY)
  await ops.hasEnrolled('web')
  await web.stop()
}

/** Runs shell lines with a kubectl that has no cluster. It only prints manifests, and notes every other call. */
const madeOffline = async (lines, cwd) => {
  const script = `kubectl() { case " $* " in *" --dry-run=client "*) command kubectl "$@" ;; *) echo "$*" >> calls ;; esac; }\n${lines}`
  await ran('bash', ['-ec', script], { cwd })
}

const checkNodes = async (image, ops, { place, network, daemons }) => {
  const [files, disk] = [join(place, 'manifests'), join(place, 'disk')]
  for (const path of [files, disk]) mkdirSync(path)
  copyFileSync(DAEMON_SET, join(files, 'kubernetes.yaml'))
  writeFileSync(join(files, 'web.token'), `${await ops.tokenFor('node')}\n`)
  writeFileSync(join(files, 'kustomization.yaml'), snippetOf(ENROL, 'Kubernetes', 'yaml'))
  const fields = { 'spec.nodeName': 'node', 'status.hostIP': network.addressOf(NODE) }
  const pod = { place: disk, image, network, fields, daemons }
  const enrolling = documentsOf(await ran('kubectl', ['kustomize', files]))
  const { containers, initContainers } = enrolling.find(({ kind }) => kind === 'DaemonSet').spec.template.spec
  for (const one of [...containers, ...initContainers]) assert.equal(one.image, 'registry.example/x0x')
  let node = await startPod(enrolling, pod)
  await ops.hasEnrolled('node')
  assert.equal(await node.stop(), 0)

  const { signer, acl } = await ops.signed(['uname', '-s'])
  const documents = documentsOf(readFileSync(DAEMON_SET, 'utf8'))
  const shipped = documents.find(({ kind }) => kind === 'ConfigMap')
  const signers = withValue(snippetOf(ACLS, 'Name the signer on each host', 'toml'), SHOWN_SIGNER, signer)
  writeFileSync(join(files, 'config.toml'), shipped.data['config.toml'] + signers)
  writeFileSync(join(files, 'web.acl'), acl)
  await madeOffline(snippetOf(ACLS, 'Kubernetes', 'sh'), files)
  assert.match(readFileSync(join(files, 'calls'), 'utf8'), /^apply -f web\.yaml\n.*rollout restart daemonset x0x\n$/)
  const [config] = documentsOf(readFileSync(join(files, 'web.yaml'), 'utf8'))
  assert.deepEqual([config.kind, config.metadata.name, config.metadata.namespace], ['ConfigMap', 'x0x', 'x0x'])
  assert.equal(config.data['exec-acl.toml'], acl)
  node = await startPod([...documents.filter((one) => one !== shipped), config], pod)
  assert.equal(await ops.x0x('exec', 'node', '--', 'uname', '-s'), 'Linux\n')
  await assert.rejects(ops.x0x('exec', 'node', '--', 'uname', '-r'), /argv_not_allowed/)
  assert.equal(await node.stop(), 0)
}

/** `place` is a directory for this check alone. */
export const checkEnrol = async (place, image, daemons) => {
  const network = new Network(place)
  const here = { place, network, daemons }
  try {
    const names = ['ops', 'web', 'node']
    assert.equal(names[NODE], 'node')
    await network.start(names)
    const ops = await Operator.start(image, here)
    await checkDocker(image, ops, here)
    const cannot = cannotKustomize()
    if (cannot === undefined) await checkNodes(image, ops, here)
    else console.log(`the Kubernetes examples are not tested: ${cannot}`)
    await ops.container.stop()
  } finally {
    await network.stop()
  }
}
