import { closeSync, readFileSync, readdirSync } from 'node:fs'

/** O_CLOEXEC in fdinfo, proc_pid_fdinfo(5). It is the same on all supported architectures. */
const CLOSE_ON_EXEC = 0o2000000

const closesOnExec = (descriptor: number): boolean => {
  const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'latin1'))?.[1]
  return flags === undefined || (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) !== 0
}

/** With these variables, the runtime reads certificates in a separate thread at its start. */
const READS_CERTIFICATES = ['NODE_EXTRA_CA_CERTS', 'NODE_USE_SYSTEM_CA', 'NODE_OPTIONS']

/**
 * That thread opens its file without O_CLOEXEC. If we closed its descriptor, the thread would close the number again after its reuse.
 * Requesting the certificates waits until the thread is done.
 */
const awaitCertificates = (): void => {
  if (READS_CERTIFICATES.every((name) => process.env[name] === undefined)) return
  // Loaded only here, because it takes as long as the rest of this file.
  const { getCACertificates } = process.getBuiltinModule('node:tls')
  for (const kind of ['extra', 'default'] as const) getCACertificates(kind)
}

/**
 * Closes descriptors that the parent process left open, because every child would inherit them. The runtime marks its own descriptors and
 * the first inherited ones, but stops at the first gap. Linux only.
 */
export const closeInheritedDescriptors = (): void => {
  awaitCertificates()
  let names: string[]
  try {
    names = readdirSync('/proc/self/fd')
  } catch {
    return
  }
  for (const descriptor of names.map(Number).filter((number) => number > 2))
    try {
      if (!closesOnExec(descriptor)) closeSync(descriptor)
    } catch {
      // It was the descriptor of the directory itself.
    }
}
