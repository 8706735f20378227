// The pod of the DaemonSet, as a process in an image's files, with the variables that a kubelet gives it where Services are called
// x0x and x0x-api.
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { parseAllDocuments } from 'yaml'

import { packageRoot } from '../runtime.mjs'
import { X0XD_READY } from './check-host.mjs'
import { Container, Network } from './container.mjs'

/** As the kubelet makes them: for each port of a Service, and once more for its first in the words of docker's links. */
const serviceVariables = (service, address, ports) => {
  const name = service.toUpperCase().replaceAll('-', '_')
  const [first] = ports
  const all = {
    [`${name}_SERVICE_HOST`]: address,
    [`${name}_SERVICE_PORT`]: first.port,
    [`${name}_PORT`]: `tcp://${address}:${first.port}`,
  }
  for (const { name: port, port: number } of ports) {
    const prefix = `${name}_PORT_${number}_TCP`
    all[`${name}_SERVICE_PORT_${port.toUpperCase()}`] = number
    Object.assign(all, { [prefix]: `tcp://${address}:${number}`, [`${prefix}_PROTO`]: 'tcp' })
    Object.assign(all, { [`${prefix}_PORT`]: number, [`${prefix}_ADDR`]: address })
  }
  return Object.fromEntries(Object.entries(all).map(([key, value]) => [key, String(value)]))
}

/** Values of fields, then what is made of them. */
const environment = (env, fields) => {
  const values = {}
  for (const { name, value, valueFrom } of env)
    values[name] = valueFrom ? fields[valueFrom.fieldRef.fieldPath] : value.replace(/\$\((\w+)\)/g, (_, other) => values[other])
  return values
}

/** Where each volume of the pod is here. `named`: finds a ConfigMap or a Secret. */
const volumeOf =
  (place, named) =>
  ({ name, hostPath, emptyDir, configMap, secret }) => {
    if (emptyDir) return [name, null]
    const path = join(place, name)
    mkdirSync(path, { mode: 0o755, recursive: true })
    if (hostPath) assert.equal(hostPath.type, 'DirectoryOrCreate', name)
    // Everybody may write the directory of a ConfigMap, in as far as it can be written.
    else if (configMap) placeFiles(path, named('ConfigMap', configMap.name).data, configMap.defaultMode)
    else placeFiles(path, decoded(named('Secret', secret.secretName).data), secret.defaultMode)
    return [name, path]
  }

const decoded = (data) => Object.fromEntries(Object.entries(data).map(([name, text]) => [name, Buffer.from(text, 'base64')]))

/** As a kubelet does: the names of the files are links. */
const placeFiles = (path, files, mode) => {
  mkdirSync(join(path, '..data'), { recursive: true })
  for (const [name, data] of Object.entries(files)) {
    rmSync(join(path, name), { force: true })
    rmSync(join(path, '..data', name), { force: true })
    writeFileSync(join(path, '..data', name), data, { mode })
    symlinkSync(join('..data', name), join(path, name))
  }
}

const containerOf = ({ securityContext: rights, volumeMounts, env = [], args }, { volumes, image, network, fields, services }) => {
  const { runAsUser, runAsGroup, readOnlyRootFilesystem, allowPrivilegeEscalation, capabilities } = rights
  assert.deepEqual([readOnlyRootFilesystem, allowPrivilegeEscalation, capabilities.drop], [true, false, ['ALL']])
  const at = ({ name, mountPath: to, subPath = '', readOnly = false }) => ({
    // A part of a volume is mounted as the file that its link leads to.
    from: volumes[name] && realpathSync(join(volumes[name], subPath)),
    to,
    isFixed: readOnly,
  })
  const mounts = volumeMounts.map(at)
  return new Container(image, {
    name: 'node',
    network,
    user: `${runAsUser}:${runAsGroup}`,
    capabilities: capabilities.add ?? [],
    tmpfs: mounts.filter(({ from }) => from === null).map(({ to }) => to),
    mounts: mounts.filter(({ from }) => from !== null),
    env: { ...services, ...environment(env, fields) },
    ...(args && { args }),
  })
}

/** The documents of a manifest, whose numbers are those of YAML 1.1. */
export const documentsOf = (text) => parseAllDocuments(text, { version: '1.1' }).map((one) => one.toJS())

export const DAEMON_SET = join(packageRoot, 'deploy', 'kubernetes.yaml')

/**
 * Starts the pod of the DaemonSet among these documents on the host `node` of a network. `place`: what stands for the disk of its machine.
 * `fields`: of the pod. `services`: the variables of other Services.
 */
export const startPod = async (documents, { place, image, network, fields, services = {}, daemons }) => {
  const named = (kind, name) => documents.find((one) => one.kind === kind && one.metadata.name === name)
  const { spec: pod } = documents.find(({ kind }) => kind === 'DaemonSet').spec.template
  const volumes = Object.fromEntries(pod.volumes.map(volumeOf(place, named)))
  const here = { volumes, image, network, fields, services }
  for (const one of pod.initContainers) await containerOf(one, here).run(one.command)
  const node = containerOf(pod.containers[0], here)
  await node.start(daemons, X0XD_READY)
  return node
}

/** `place`: a directory of this check alone. */
export const checkKubernetes = async (place, image, daemons) => {
  const documents = documentsOf(readFileSync(DAEMON_SET, 'utf8'))
  const [space, config, set, service] = documents
  assert.deepEqual(
    documents.map(({ kind }) => kind),
    ['Namespace', 'ConfigMap', 'DaemonSet', 'Service'],
  )
  for (const one of [config, set, service]) assert.equal(one.metadata.namespace, space.metadata.name)
  const { metadata, spec: pod } = set.spec.template
  for (const labels of [set.spec.selector.matchLabels, service.spec.selector]) assert.deepEqual(labels, metadata.labels)
  assert.notEqual(pod.enableServiceLinks, false, 'what is tried here is a pod with the variables of Services')
  const [container] = pod.containers
  for (const { targetPort } of service.spec.ports) assert.ok(container.ports.some(({ name }) => name === targetPort))
  const network = new Network(place)
  try {
    await network.start(['node'])
    const services = {
      ...serviceVariables(service.metadata.name, '10.96.0.12', service.spec.ports),
      ...serviceVariables('x0x-api', '10.96.0.13', [{ name: 'api', port: 12700 }]),
    }
    assert.equal(services.X0X_PORT, 'tcp://10.96.0.12:5483')
    const fields = { 'spec.nodeName': 'node-1', 'status.hostIP': '192.0.2.7' }
    const node = await startPod(documents, { place, image, network, fields, services, daemons })
    for (const { exec } of [container.readinessProbe, container.livenessProbe]) await node.exec(...exec.command)
    // Orphans of a command: tini reaps them, also as process 1.
    await node.exec(
      'sh',
      '-c',
      '(true &); (true &); for i in $(seq 100); do grep -qs "^State:.Z" /proc/[0-9]*/status || exit 0; sleep 0.1; done; exit 1',
    )
    const { name, addresses } = JSON.parse(await node.exec('x0x', 'id', '--json'))
    assert.equal(name, 'node-1')
    assert.ok(
      addresses.some((address) => address.startsWith('/ip4/192.0.2.7/tcp/5483/')),
      addresses.join(' '),
    )
    assert.equal(await node.stop(), 0, 'the pod ends when it is asked to')
  } finally {
    await network.stop()
  }
}
