import { closeSync, readFileSync, readdirSync } from 'node:fs'

/** O_CLOEXEC as fdinfo shows it, proc_pid_fdinfo(5); the same on every architecture we run on. */
const CLOSE_ON_EXEC = 0o2000000

const closesOnExec = (descriptor: number): boolean => {
  const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'latin1'))?.[1]
  return flags === undefined || (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) !== 0
}

/** What makes the runtime read certificates by a thread of its own, from its start on. */
const READS_CERTIFICATES = ['NODE_EXTRA_CA_CERTS', 'NODE_USE_SYSTEM_CA', 'NODE_OPTIONS']

/**
 * That thread opens its file without O_CLOEXEC. If we closed it, the thread would close the same number once more, when
 * another file has it. Asking for the certificates waits until the thread is done.
 */
const awaitCertificates = (): void => {
  if (READS_CERTIFICATES.every((name) => process.env[name] === undefined)) return
  // Loaded only then: it takes as long as all else of this file's work.
  const { getCACertificates } = process.getBuiltinModule('node:tls')
  for (const kind of ['extra', 'default'] as const) getCACertificates(kind)
}

/**
 * Closes the descriptors that our parent left open, which every child would inherit. The runtime marks its own
 * descriptors and the first inherited ones, but stops at the first gap. Linux only; elsewhere nothing.
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
      // It was the one that read the directory, and is gone.
    }
}
