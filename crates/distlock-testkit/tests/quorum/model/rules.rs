//! The steps of the protocol.

pub(super) const NODES: usize = 3;
const MAJORITY: u32 = 2;
pub(super) const CLIENTS: usize = 2;
/// The length of a lease, in ticks; also the longest one.
const TTL: u8 = 2;
/// How far a node's clock jumps.
const JUMP: u8 = 3;
/// When time ends.
const END: u8 = 3;

/// What is built on top of the bare algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rules {
    /// The second phase, and a store that checks.
    pub(super) token: bool,
    /// A node that restarted empty has no vote for the longest lease.
    pub(super) newborns: bool,
}

/// How often what may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Faults {
    pub(super) restarts: u8,
    pub(super) jumps: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Node {
    holder: Option<u8>,
    expires: u8,
    token: u8,
    /// Its clock, ahead of the others'.
    ahead: u8,
    born: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Client {
    Idle,
    /// Nodes asked, and those that said yes.
    Asking {
        started: u8,
        asked: u8,
        granted: u8,
        token: u8,
    },
    Raising {
        started: u8,
        granted: u8,
        raised: u8,
        token: u8,
    },
    Holding {
        until: u8,
        token: u8,
    },
    /// It has looked at its clock and found the hold valid.
    Writing {
        until: u8,
        token: u8,
    },
    /// Over; the nodes have still to be left.
    Leaving,
    Gone,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    now: u8,
    nodes: [Node; NODES],
    clients: [Client; CLIENTS],
    /// The largest token that the store has seen.
    fence: u8,
    /// B began after A was granted.
    succeeds: bool,
    /// B, as A's successor, has written.
    succeeded: bool,
    faults: (u8, u8),
}

/// Who did what, and at which node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label {
    who: &'static str,
    what: &'static str,
    node: Option<usize>,
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.who, self.what)?;
        self.node.map_or(Ok(()), |node| write!(f, " {node}"))
    }
}

/// A step that was made, and whether the store took a stale write by it.
pub(super) struct Step {
    pub(super) label: Label,
    pub(super) state: State,
    pub(super) stale: bool,
}

impl Step {
    fn new(
        who: &'static str,
        what: &'static str,
        node: Option<usize>,
        mut state: State,
        stale: bool,
    ) -> Self {
        state.forget();
        let label = Label { who, what, node };
        Self { label, state, stale }
    }
}

impl Node {
    fn time(&self, now: u8) -> u8 {
        now + self.ahead
    }

    fn is_free(&self, now: u8) -> bool {
        self.holder.is_none() || self.expires <= self.time(now)
    }

    fn is_newborn(&self, now: u8) -> bool {
        self.born.is_some_and(|born| self.time(now) < born + TTL)
    }
}

impl State {
    pub(super) fn start() -> Self {
        Self {
            now: 0,
            nodes: [Node::default(); NODES],
            // Without loss of generality A begins first, at once, and the nodes are numbered as it asks them.
            clients: [
                Client::Asking {
                    started: 0,
                    asked: 0,
                    granted: 0,
                    token: 0,
                },
                Client::Idle,
            ],
            fence: 0,
            succeeds: false,
            succeeded: false,
            faults: (0, 0),
        }
    }

    /// What is over is the same as what never was.
    fn forget(&mut self) {
        for node in &mut self.nodes {
            if node.is_free(self.now) {
                (node.holder, node.expires) = (None, 0);
            }
            node.born = node.born.filter(|_| node.is_newborn(self.now));
        }
    }

    /// Whether both clients hold by their own clocks.
    pub(super) fn two_holders(&self) -> bool {
        self.clients.iter().all(|client| match client {
            Client::Holding { until, .. } | Client::Writing { until, .. } => self.now < *until,
            _ => false,
        })
    }

    pub(super) fn steps(&self, rules: Rules, faults: Faults) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.now < END {
            let state = Self {
                now: self.now + 1,
                ..self.clone()
            };
            steps.push(Step::new("time", "passes", None, state, false));
        }
        for node in 0..NODES {
            let mut add = |what: &'static str, change: &dyn Fn(&mut Self)| {
                let mut state = self.clone();
                change(&mut state);
                steps.push(Step::new("somebody", what, Some(node), state, false));
            };
            if self.faults.0 < faults.restarts && self.nodes[node].token > 0 {
                add("restarts without data node", &|state| {
                    let ahead = state.nodes[node].ahead;
                    let born = Some(state.nodes[node].time(state.now));
                    state.nodes[node] = Node {
                        ahead,
                        born,
                        ..Node::default()
                    };
                    state.faults.0 += 1;
                });
            }
            if self.faults.1 < faults.jumps {
                add("moves the clock forward of node", &|state| {
                    state.nodes[node].ahead += JUMP;
                    state.faults.1 += 1;
                });
            }
        }
        for client in 0..CLIENTS {
            self.client_steps(client, rules, &mut steps);
        }
        steps
    }

    fn client_steps(&self, client: usize, rules: Rules, steps: &mut Vec<Step>) {
        let name = ["A", "B"][client];
        let mut add = |what: &'static str, node: Option<usize>, state: State| {
            steps.push(Step::new(name, what, node, state, false));
        };
        let next = |next: Client| {
            let mut state = self.clone();
            state.clients[client] = next;
            state
        };
        match self.clients[client] {
            Client::Idle => {
                let asking = Client::Asking {
                    started: self.now,
                    asked: 0,
                    granted: 0,
                    token: 0,
                };
                let mut state = next(asking);
                state.succeeds = matches!(self.clients[0], Client::Holding { .. } | Client::Writing { .. });
                add("begins", None, state);
            }
            Client::Asking {
                started,
                asked,
                granted,
                token,
            } => {
                let unasked = (0..NODES).filter(|node| asked & (1 << node) == 0);
                for node in unasked.take(if client == 0 { 1 } else { NODES }) {
                    let (state, yes) = self.asked(client, node, rules, (started, asked, granted, token));
                    add(
                        if yes {
                            "is granted node"
                        } else {
                            "is refused by node"
                        },
                        Some(node),
                        state,
                    );
                }
                if granted.count_ones() >= MAJORITY {
                    let raised = if rules.token { 0 } else { granted };
                    add(
                        "has a majority",
                        None,
                        next(Client::Raising {
                            started,
                            granted,
                            raised,
                            token,
                        }),
                    );
                } else if asked == (1 << NODES) - 1 {
                    add("is refused", None, next(Client::Leaving));
                }
            }
            Client::Raising {
                started,
                granted,
                raised,
                token,
            } => {
                for node in (0..NODES).filter(|node| granted & !raised & (1 << node) != 0) {
                    let mut state = self.clone();
                    let there = &mut state.nodes[node];
                    if there.holder != Some(client as u8) || there.is_free(self.now) {
                        continue;
                    }
                    there.token = there.token.max(token);
                    there.expires = there.time(self.now) + TTL;
                    let raised = raised | 1 << node;
                    state.clients[client] = Client::Raising {
                        started,
                        granted,
                        raised,
                        token,
                    };
                    add("raises the token of node", Some(node), state);
                }
                if self.now >= started + TTL {
                    add("was too slow", None, next(Client::Leaving));
                } else if raised.count_ones() >= MAJORITY {
                    let until = started + TTL;
                    add("holds", None, next(Client::Holding { until, token }));
                }
            }
            Client::Holding { until, token } => {
                if self.now < until {
                    add("looks at its clock", None, next(Client::Writing { until, token }));
                }
                add("has done its work", None, next(Client::Leaving));
            }
            Client::Writing { token, .. } => {
                let mut state = next(Client::Leaving);
                if rules.token && token < self.fence {
                    add("writes, and is refused by the store", None, state);
                } else {
                    state.fence = state.fence.max(token);
                    state.succeeded = client == 1 && self.succeeds;
                    let stale = client == 0 && self.succeeded;
                    steps.push(Step::new(name, "writes", None, state, stale));
                }
            }
            Client::Leaving => {
                let mut state = next(Client::Gone);
                for node in &mut state.nodes {
                    node.holder = node.holder.filter(|holder| *holder != client as u8);
                }
                add("leaves the nodes", None, state);
            }
            Client::Gone => {}
        }
    }

    /// One node is asked, and answers.
    fn asked(
        &self,
        client: usize,
        node: usize,
        rules: Rules,
        (started, asked, granted, token): (u8, u8, u8, u8),
    ) -> (Self, bool) {
        let mut state = self.clone();
        let there = &mut state.nodes[node];
        let yes = there.is_free(self.now);
        let (mut granted, mut token) = (granted, token);
        if yes {
            there.holder = Some(client as u8);
            there.expires = there.time(self.now) + TTL;
            there.token = (there.token + 1).max(there.time(self.now) + 1);
            token = token.max(there.token);
            if !(rules.newborns && there.is_newborn(self.now)) {
                granted |= 1 << node;
            }
        }
        state.clients[client] = Client::Asking {
            started,
            asked: asked | 1 << node,
            granted,
            token,
        };
        (state, yes)
    }
}
