// Runs the pod of the DaemonSet as a process in the files of an image. Its environment has the variables that a kubelet sets for Services
// named x0x and x0x-api.
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { parseAllDocuments } from 'yaml'

import { packageRoot } from '../runtime.mjs'
import { X0XD_READY } from './check-host.mjs'
import { Container, Network } from './container.mjs'

/** Variables of a Service, as the kubelet sets them. Each port has some, and the first one also has those of Docker links. */
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

/** Resolves fields of the pod and references to earlier variables. */
const environment = (env, fields) => {
  const values = {}
  for (const { name, value, valueFrom } of env)
    values[name] = valueFrom ? fields[valueFrom.fieldRef.fieldPath] : value.replace(/\$\((\w+)\)/g, (_, other) => values[other])
  return values
}

/** Returns the directory of a volume of the pod. `named` finds a ConfigMap or a Secret. */
const volumeOf =
  (place, named) =>
  ({ name, hostPath, emptyDir, configMap, secret }) => {
    if (emptyDir) return [name, null]
    const path = join(place, name)
    mkdirSync(path, { mode: 0o755, recursive: true })
    if (hostPath) assert.equal(hostPath.type, 'DirectoryOrCreate', name)
    else if (configMap) placeFiles(path, named('ConfigMap', configMap.name).data, configMap.defaultMode)
    else placeFiles(path, decoded(named('Secret', secret.secretName).data), secret.defaultMode)
    return [name, path]
  }

const decoded = (data) => Object.fromEntries(Object.entries(data).map(([name, text]) => [name, Buffer.from(text, 'base64')]))

/** Makes links for the names of the files, as a kubelet does. */
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
    // A volume with a subPath is mounted as the file to which the link leads.
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

/** The documents of a manifest. Numbers follow YAML 1.1. */
export const documentsOf = (text) => parseAllDocuments(text, { version: '1.1' }).map((one) => one.toJS())

export const DAEMON_SET = join(packageRoot, 'deploy', 'kubernetes.yaml')

/**
 * Starts the pod of the DaemonSet in these documents on the host `node` of a network. `place` is the disk of its machine, `fields` are
 * fields of the pod, and `services` are variables of other Services.
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

/** `place` is a directory for this check alone. */
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
    // A command leaves orphans behind. tini reaps them, also if it is process 1.
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
