import { AppError } from '../base/errors.ts'

/** Flags of a daemon that make no sense, on one line. */
export const badFlags = (problem: string, command: string): AppError =>
  new AppError('bad_config', `${problem.replace(/\.$/, '')}; how to use it: ${command} --help`)
