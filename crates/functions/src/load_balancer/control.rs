//! The load balancer off the packets' path: making an instance from its configuration, and the
//! operator's commands.
//!
//! Not here: the shape of the configuration and its checks, service by service ([`super::config`]).

use super::*;

/// The most pairs of a service's address and a backend of it: the identities by which flows find
/// both after a change take some 20 bytes each, in each runtime.
const PAIRS_MAX: usize = 1 << 20;

impl LoadBalancer {
    /// Makes an instance.
    pub(super) fn compile(config: &LoadBalancerConfig) -> Result<Self, ConfigError> {
        if config.services.is_empty() {
            return Err(ConfigError::new(
                "services",
                "there is no service, so nothing would be balanced",
                "add a [[function.load_balancer.services]] table, or take the function out of the chain",
            ));
        }
        let (mut targets, mut loads, mut names) = (Vec::new(), Vec::new(), Vec::new());
        let mut words = Vec::new();
        let (mut frontends, mut services) = (Vec::new(), Vec::new());
        let mut pairs = 0;
        for (index, settings) in config.services.iter().enumerate() {
            let compiled = config::Service::compile(index, settings)?;
            let first = loads.len();
            if first + settings.backends.len() > usize::from(u16::MAX) {
                return Err(ConfigError::new(
                    format!("services[{index}].backends"),
                    "more than 65535 backends in all",
                    "spread the services over several load balancers",
                ));
            }
            for (backend, endpoint) in settings.backends.iter().zip(&compiled.endpoints) {
                targets.push(target(&backend.name, *endpoint));
                loads.push(Load::new(backend.weight, backend.state));
                words.push(Word::new(backend.state));
                names.push(backend.name.clone());
            }
            let service = Service {
                name: settings.name.clone(),
                first: first as u16,
                count: settings.backends.len() as u16,
                policy: policy(settings, config.seed),
                when_down: settings.when_down,
                is_checked: settings.check.is_some(),
            };
            service.policy.on_health(&loads[first..]);
            services.push(service);
            pairs += compiled.addresses.len() * settings.backends.len();
            if frontends.len() + compiled.addresses.len() > usize::from(u16::MAX) || pairs > PAIRS_MAX {
                return Err(ConfigError::new(
                    format!("services[{index}].addresses"),
                    format!(
                        "more than {} addresses in all, or more than {PAIRS_MAX} pairs of an address and a backend",
                        u16::MAX
                    ),
                    "spread the services over several load balancers",
                ));
            }
            frontends.extend(compiled.addresses.iter().map(|addr| Frontend {
                addr: *addr,
                protocol: compiled.protocol,
                first_port: compiled.first_port,
                last_port: compiled.last_port,
                service: index as u16,
                idle_timeout: settings.idle_timeout.unwrap_or(BY_PHASE),
                hash: maglev::hash(
                    addr.octets(),
                    u64::from(compiled.protocol) << 16 | u64::from(compiled.first_port),
                ),
            }));
        }
        frontends.sort_by_key(|f| (f.addr, f.protocol, f.first_port));
        refuse_overlaps(&frontends)?;
        check::refuse_many(config)?;
        let mut balancer = LoadBalancer {
            targets: targets.into(),
            frontends: frontends.into(),
            loads: loads.into(),
            services: services.into(),
            words: words.into(),
            names: names.into(),
            by_identity: HashMap::new(),
            seed: config.seed,
        };
        balancer.index_identities();
        balancer.refresh_cuts();
        Ok(balancer)
    }

    fn index_identities(&mut self) {
        let mut twice = Vec::new();
        for (f, frontend) in self.frontends.iter().enumerate() {
            for b in self.services[usize::from(frontend.service)].range() {
                let identity = self.identity(f, b);
                if self.by_identity.insert(identity, (f as u16, b as u16)).is_some() {
                    twice.push(identity);
                }
            }
        }
        // Two pairs with one hash: flows of either end when the configuration changes, rather than
        // change servers.
        for identity in twice {
            self.by_identity.remove(&identity);
        }
    }

    pub(super) fn refresh_cuts(&self) {
        for service in &self.services {
            for index in service.range() {
                let down = self.loads[index].health.get() == Health::Down;
                self.targets[index]
                    .cut
                    .set(down && service.when_down == WhenDownConfig::Drop);
            }
        }
    }

    /// The servers that a name means. It may be `SERVICE/NAME`; without a service it means the
    /// backends of that name in all services, as one machine often serves in several.
    pub(super) fn named(&self, name: &str) -> impl Iterator<Item = (&Service, usize)> {
        let (service, backend) = match name.split_once('/') {
            Some((service, backend)) => (Some(service), backend),
            None => (None, name),
        };
        let meant = move |of: &&Service| service.is_none_or(|wanted| wanted == of.name);
        let index = move |of: &Service| of.range().find(|index| self.names[*index] == backend);
        let services = self.services.iter().filter(meant);
        services.filter_map(move |of| Some((of, index(of)?)))
    }

    /// `backend NAME up|down|drain`.
    pub(super) fn set_health(&self, name: &str, state: &str) -> Result<String, String> {
        let health = match state {
            "up" => Health::Up,
            "down" => Health::Down,
            "drain" | "draining" => Health::Draining,
            _ => return Err(format!("`{state}` is no state: write up, down or drain")),
        };
        let mut found = 0;
        for (service, index) in self.named(name) {
            found += 1;
            self.words[index].said.set(health);
            self.follow_words(service, index);
        }
        self.refresh_cuts();
        match found {
            0 => Err(format!(
                "there is no backend `{name}`: the command `backends` lists them"
            )),
            1 => Ok(format!("{name} is {}", health.name())),
            n => Ok(format!("{name} is {} in {n} services", health.name())),
        }
    }

    /// The commands that make another instance's servers what an operator has made of these.
    pub(super) fn words_said(&self) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for service in &self.services {
            for index in service.range() {
                let (word, name) = (&self.words[index], &self.names[index]);
                if word.said.get() != word.configured {
                    let server = format!("{}/{name}", service.name);
                    let state = word.said.get().name();
                    all.push(["backend", server.as_str(), state].map(String::from).to_vec());
                }
            }
        }
        all
    }

    /// `check SERVICE BACKEND up|down`: the process's finding. It may say again what is known.
    pub(super) fn note_check(&self, service: &str, backend: &str, state: &str) -> Result<String, String> {
        let passes = match state {
            "up" => true,
            "down" => false,
            _ => return Err(format!("`{state}` is no result of a check: write up or down")),
        };
        let found = self.services.iter().find(|known| known.name == service);
        let of =
            found.and_then(|service| Some((service, service.range().find(|i| self.names[*i] == backend)?)));
        let Some((found, index)) = of.filter(|(service, _)| service.is_checked) else {
            return Err(format!("no backend `{service}/{backend}` is checked"));
        };
        if self.words[index].passes.replace(passes) != passes {
            self.follow_words(found, index);
            self.refresh_cuts();
        }
        Ok(format!("{service}/{backend} is {}", self.words[index].name()))
    }

    /// Has a server take connections or not, as it was said; a policy hears of it if that changed.
    fn follow_words(&self, service: &Service, index: usize) {
        let health = self.words[index].health();
        if self.loads[index].health.replace(health) != health {
            service.policy.on_health(&self.loads[service.range()]);
        }
    }

    /// A row of `backends`.
    pub(super) fn row(&self, service: &Service, index: usize) -> Row {
        let load = &self.loads[index];
        row![
            &*service.name,
            &*self.names[index],
            self.words[index].name(),
            load.weight,
            load.connections.get(),
            load.opened.get(),
        ]
    }
}

fn target(name: &str, endpoint: Endpoint) -> Target {
    let named = maglev::hash(name.as_bytes(), u64::from(endpoint.port));
    Target {
        addr: endpoint.addr,
        identity: maglev::hash(endpoint.addr.octets(), named) as u32,
        port: endpoint.port,
        cut: Cell::new(false),
    }
}

fn policy(settings: &config::ServiceConfig, seed: u64) -> Policy {
    match settings.policy {
        PolicyConfig::LeastConnections => Policy::LeastConnections(Cell::new(0)),
        PolicyConfig::RoundRobin => Policy::RoundRobin(policy::Turn::default()),
        PolicyConfig::Maglev => {
            let names = settings.backends.iter().map(|b| b.name.as_str());
            Policy::Maglev(maglev::Table::new(settings.table_size, names, seed))
        }
    }
}

fn refuse_overlaps(sorted: &[Frontend]) -> Result<(), ConfigError> {
    for pair in sorted.windows(2) {
        let [a, b] = pair else { continue };
        if (a.addr, a.protocol) == (b.addr, b.protocol) && b.first_port <= a.last_port {
            let (early, late) = (a.service.min(b.service), a.service.max(b.service));
            return Err(ConfigError::new(
                format!("services[{late}]"),
                format!("shares ports of {} with services[{early}]", a.addr),
                "let each address, protocol and port belong to one service",
            ));
        }
    }
    Ok(())
}
