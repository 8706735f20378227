import { closeSync, readdirSync, readFileSync } from 'node:fs'

/** O_CLOEXEC as fdinfo shows it, proc_pid_fdinfo(5); the same on every architecture we run on. */
const CLOSE_ON_EXEC = 0o2000000

const closesOnExec = (descriptor: number): boolean => {
  const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${descriptor}`, 'latin1'))?.[1]
  return flags === undefined || (Number.parseInt(flags, 8) & CLOSE_ON_EXEC) !== 0
}

/**
 * Closes what whoever started us left open and would go on to every child. The runtime marks its own
 * descriptors and the first inherited ones, but stops at the first gap. Linux only; elsewhere nothing.
 */
export const closeInheritedDescriptors = (): void => {
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
