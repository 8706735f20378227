import { join } from 'node:path'

/** An sshd of one's own on this port of this machine: its keys in `dir`, nothing of the system's. */
export const sshdConfig = (dir: string, port: number): string[] => [
  `Port ${port}`,
  'ListenAddress 127.0.0.1',
  `HostKey ${join(dir, 'host')}`,
  `AuthorizedKeysFile ${join(dir, 'authorized_keys')}`,
  // The directory that it is in may be everybody's.
  'StrictModes no',
  'UsePAM no',
  'PasswordAuthentication no',
  'PermitRootLogin yes',
  'PidFile none',
  'LogLevel ERROR',
  // The account's shell would otherwise read its start-up files, which may cost 100 ms and are no fault of ssh.
  `SetEnv HOME=${dir}`,
]

/** How its callers reach it, for ssh and for sftp, which has other letters for short options. */
export const sshOptions = (dir: string, port: number): string[] =>
  [
    `Port=${port}`,
    `IdentityFile=${join(dir, 'user')}`,
    'IdentitiesOnly=yes',
    'BatchMode=yes',
    'StrictHostKeyChecking=no',
    `UserKnownHostsFile=${join(dir, 'known_hosts')}`,
    'LogLevel=ERROR',
  ].flatMap((option) => ['-o', option])
