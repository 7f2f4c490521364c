package configuration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxRaces is how often an announcement is attempted when it loses a race with other replicas.
const maxRaces = 10

// Announce makes the API server send the pods of a rule that is about to be stored, and returns when it does.
// The expression selects the pods of the rule. The probed API server then uses the entry; others follow
// within moments. An error is why the first pods may be missed.
//
// The object with the rule may not exist: anyone who can reach the port can send a review. Therefore
// announcements are limited, and an expression that API servers cannot evaluate is not written.
func (p *Publisher) Announce(ctx context.Context, expression string) error {
	if p.Recent == nil || p.External || expression == "false" {
		return nil
	}
	if err := p.Check(expression); err != nil {
		return err
	}
	if p.announcements.AllowN(p.clock.Now(), 1) {
		return p.announce(ctx, expression)
	}

	_, err := p.together.Do(ctx, everyPod, func(ctx context.Context) (none struct{}, err error) {
		if p.wideSince.IsZero() || p.clock.Since(p.wideSince) >= againTime {
			if err = p.announce(ctx, everyPod); err == nil {
				p.wideSince = p.clock.Now()
			}
		}
		return none, err
	})
	return err
}

// announce writes a rule, and returns when it is served.
func (p *Publisher) announce(ctx context.Context, expression string) error {
	token, err := p.write(ctx, expression)
	if err != nil || token == "" {
		return err
	}
	return p.served(ctx, token)
}

// write writes a rule, and returns its token, or "" if pods are not sent here at all.
func (p *Publisher) write(ctx context.Context, expression string) (string, error) {
	p.announcing.Lock() // so that announcements only race with those of other replicas
	defer p.announcing.Unlock()
	for range maxRaces {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(mutatingKind)
		if err := p.client.Get(ctx, types.NamespacedName{Name: p.Mutating}, live); err != nil {
			return "", client.IgnoreNotFound(err)
		}

		present, _, err := unstructured.NestedSlice(live.Object, "webhooks")
		if err != nil {
			return "", err
		}

		rules, token := recentOf(live).add(expression, p.clock.Now())
		if rules == nil {
			return token, nil
		}

		entries := p.Recent.weave(present, rules)
		if !slices.ContainsFunc(entries, named(p.Recent.Name)) {
			return "", nil // there is no entry for pods
		}

		fields := map[string]any{"/webhooks": entries}
		if err := rules.remember(live, fields); err != nil {
			return "", err
		}

		switch err := p.patch(ctx, live, fields); {
		case err == nil:
			return token, nil
		case !errors.Is(err, ErrLostRace):
			return "", fmt.Errorf("changing %s: %w", live.GetName(), err)
		}
	}

	return "", ErrLostRace
}

// served returns when the API server sends the pods of the rule with the token.
func (p *Publisher) served(ctx context.Context, token string) error {
	ctx, cancel := context.WithTimeout(ctx, servedTime)
	defer cancel()
	for wait := servedSoon; ; wait = min(2*wait, servedLate) {
		err := p.Recent.Probe(ctx, token)
		if p.Recent.Found(err, token) {
			p.sleep(ctx, othersTime)
			return nil
		}
		if !p.sleep(ctx, wait) {
			return fmt.Errorf("the API server does not ask about its pods yet: %w",
				errors.Join(ctx.Err(), err))
		}
	}
}

// sleep reports whether the time passed before the context ended.
func (p *Publisher) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-p.clock.After(d):
		return true
	}
}
