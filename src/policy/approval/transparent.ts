import { basename, dirname } from 'node:path'
import { writableByOthers } from '../../base/file-permissions.ts'

/**
 * Programs whose arguments show all that they do. With any option they read, print and end. They start no program, pager or editor, load no
 * code and no settings, and write no file. A program with one option that does any of this is not on the list.
 */
export const TRANSPARENT_PROGRAMS: readonly string[] = (
  'basename dirname echo printf pwd readlink realpath seq sleep test true false cat cmp comm cut grep head od tail tr wc ' +
  'base64 b2sum md5sum sha1sum sha256sum sha512sum df du free id ls lsblk lscpu nproc printenv ps stat uname uptime ' +
  'vmstat who whoami'
).split(' ')

const NAMES: ReadonlySet<string> = new Set(TRANSPARENT_PROGRAMS)
/** Programs that change the clock or the files that they are given, with any option, and start no program. */
const PLAIN_TOOLS: ReadonlySet<string> = new Set('chgrp chmod chown cp date ln mv rm touch truncate'.split(' '))
/** Directories of system programs after resolving links, so `/bin` counts only if it is not a link to `/usr/bin`. */
const SYSTEM_DIRECTORIES: readonly string[] = ['/usr/bin', '/bin']
const ROOT = 0

/** True for a listed name, alone or in a system directory. No more is known of a program on another host. */
export const isTransparentName = (called: string): boolean =>
  NAMES.has(basename(called)) && (!called.includes('/') || SYSTEM_DIRECTORIES.includes(dirname(called)))

/**
 * True for a listed program that is called by its own name, is in a system directory, and can be changed by root alone. Copies, other names
 * of the file and multi-call programs are not transparent.
 */
export const isTransparentFile = (called: string, real: string): boolean => isTransparentName(real) && isOfSystem(called, real)

/** True for a file that starts no program, not even one that its arguments name, by the same rules. */
export const runsNoWord = (called: string, real: string): boolean =>
  isTransparentFile(called, real) || (PLAIN_TOOLS.has(basename(real)) && isOfSystem(called, real))

const isOfSystem = (called: string, real: string): boolean =>
  SYSTEM_DIRECTORIES.includes(dirname(real)) && basename(called) === basename(real) && writableByOthers(real, ROOT).length === 0
