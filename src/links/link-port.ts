import type { ExecutorClient } from '../executor-api/client.ts'

/** The part of the executor's port that links and messages need. */
export type LinkPort = Pick<
  ExecutorClient,
  | 'identity'
  | 'onLinkDecision'
  | 'onLinkRevocations'
  | 'linkOpen'
  | 'linkConfirm'
  | 'linkAccept'
  | 'linkFinish'
  | 'linkDropped'
  | 'linkClosed'
  | 'mintNonces'
  | 'dropNonces'
  | 'revocations'
>
