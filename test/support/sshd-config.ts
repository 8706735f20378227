import { join } from 'node:path'

/** The configuration of a separate sshd on this port. Its keys are in `dir`, and it uses no file of the system. */
export const sshdConfig = (dir: string, port: number): string[] => [
  `Port ${port}`,
  'ListenAddress 127.0.0.1',
  `HostKey ${join(dir, 'host')}`,
  `AuthorizedKeysFile ${join(dir, 'authorized_keys')}`,
  // The parent directory may be writable by everyone.
  'StrictModes no',
  'UsePAM no',
  'PasswordAuthentication no',
  'PermitRootLogin yes',
  'PidFile none',
  'LogLevel ERROR',
  // Otherwise the account's shell would read its start-up files. They can take 100 ms, for which ssh is not responsible.
  `SetEnv HOME=${dir}`,
]

/** The options of clients. ssh and sftp both accept this long form. */
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
