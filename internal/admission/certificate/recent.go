package certificate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Recent says how the pods of recent rules are sent. A rule is the selection of pods by a SidecarSet or
// WorkloadSpread, and it is recent if it was accepted a moment ago. Its pods have an entry of their own, next
// to the one for all known rules. The webhook announces a rule before it is stored, so that the API server
// sends its first pod too. The path tells the called replica that its cache may not have the rule yet
// (docs/decisions/0017-pods-of-sidecarsets.md).
type Recent struct {
	// Of is the entry for known rules. While there are recent rules, a copy of it exists with this name and
	// path.
	Of, Name, Path string
	// Probe makes a request whose answer shows whether the new entry is in force; Found tells whether an
	// error is that answer.
	Probe func(ctx context.Context, token string) error
	Found func(err error, token string) bool
}

// recentAnnotation holds the recent rules as JSON.
const recentAnnotation = "recent-pod-rules"

// Names of match conditions: for the pods of recent rules, and for all other pods.
const (
	recentCondition    = "asked-for-recently"
	notRecentCondition = "not-asked-for-recently"
)

const (
	// recentTime is how long a rule is recent. By then every replica has it in its cache.
	recentTime = 30 * time.Second
	// maxRecentLength and maxRecentRules bound the recent rules. Above them all pods are sent by this entry
	// for a while.
	maxRecentLength, maxRecentRules = 4000, 100
	// servedTime is how long the API server may take to serve a changed entry. It is probed again after
	// servedSoon; the pause doubles each time, up to servedLate.
	servedTime, servedSoon, servedLate = 3 * time.Second, 20 * time.Millisecond, 500 * time.Millisecond
	// announcementsASecond and announcementsAtOnce are the announcements whose rules are written one by one.
	// Above that all pods are sent by this entry for a while: nobody's announcement is lost by those of
	// others, whoever made these up.
	announcementsASecond, announcementsAtOnce = 2, 20
	// everyPod is the rule of all pods.
	everyPod = "true"
	// othersTime is how much longer other API servers may take than the one that was probed.
	othersTime = 100 * time.Millisecond
)

// recentRules is what the annotation holds.
type recentRules []recentRule

// recentRule is one rule: which pods it selects, and when it was announced, by the clock of the announcing
// replica, in RFC 3339. A probe with its token shows whether it is served.
type recentRule struct {
	Expression string `json:"expression"`
	At         string `json:"at"`
	Token      string `json:"token"`
}

// add adds a rule and returns its token, and nil rules if it was already announced a moment ago. Too many
// rules become one for all pods, which stays as long as they would have.
func (r recentRules) add(expression string, now time.Time) (recentRules, string) {
	for _, rule := range r {
		announced, err := time.Parse(time.RFC3339, rule.At)
		if covers := rule.Expression == expression || rule.Expression == everyPod; covers && err == nil &&
			now.Sub(announced).Abs() < recentTime/3 {
			return nil, rule.Token
		}
	}
	rule := recentRule{expression, now.UTC().Format(time.RFC3339), rand.String(8)}
	rules := append(
		slices.DeleteFunc(slices.Clone(r),
			func(former recentRule) bool { return former.Expression == expression }), rule,
	)
	if len(rules) > maxRecentRules || len(rules.expression()) > maxRecentLength {
		rule.Expression = everyPod
		rules = recentRules{rule}
	}
	return rules, rule.Token
}

// wide tells whether the rules ask for all pods.
func (r recentRules) wide() bool {
	return len(r.expression()) > maxRecentLength ||
		slices.ContainsFunc(r, func(rule recentRule) bool { return rule.Expression == everyPod })
}

// recentOf reads the recent rules of a configuration. An unreadable annotation counts as none.
func recentOf(object *unstructured.Unstructured) recentRules {
	var rules recentRules
	if json.Unmarshal([]byte(object.GetAnnotations()[recentAnnotation]), &rules) != nil {
		return nil
	}
	return rules
}

// ProbeAnnotation is on pods that are created by a dry run, to see whether the rule whose token is its value
// is served.
const ProbeAnnotation = "apps.kruise.io/probe-of-webhook"

// expression is the match condition of the pods of recent rules, and of probing pods.
func (r recentRules) expression() string {
	var parts []string
	for _, rule := range r {
		parts = append(parts, rule.Expression)
	}
	slices.Sort(parts)
	return "(" + strings.Join(append(parts, r.probing()), ") || (") + ")"
}

// probing is the match condition of probing pods.
func (r recentRules) probing() string {
	var tokens []string
	for _, rule := range r {
		tokens = append(tokens, rule.Token)
	}
	slices.Sort(tokens)
	return fmt.Sprintf(
		"has(object.metadata.annotations) && '%s' in object.metadata.annotations && object.metadata.annotations['%s'] in ['%s']",
		ProbeAnnotation, ProbeAnnotation, strings.Join(tokens, "', '"),
	)
}

// weave puts the entry of recent rules before that of known rules, with conditions by which only one of them
// sends a pod. Without recent rules there is no such entry.
func (r Recent) weave(entries []any, rules recentRules) []any {
	entries = slices.DeleteFunc(slices.Clone(entries), named(r.Name))
	at := slices.IndexFunc(entries, named(r.Of))
	if at < 0 {
		return entries
	}
	known := runtime.DeepCopyJSON(entries[at].(map[string]any))
	conditions, _, _ := unstructured.NestedSlice(known, "matchConditions")
	conditions = slices.DeleteFunc(conditions, named(notRecentCondition))
	entries[at] = known
	if len(rules) == 0 {
		known["matchConditions"] = conditions
		if len(conditions) == 0 {
			delete(known, "matchConditions")
		}
		return entries
	}
	recent, expression, policy := runtime.DeepCopyJSON(known), rules.expression(), admissionv1.Fail
	if rules.wide() {
		// Anybody can have made up the rules, see Announce, and while no manager answers that must not refuse
		// the pods of all. Those of known rules are sent as before.
		var asked []string
		for _, item := range conditions {
			condition, _ := item.(map[string]any)
			asked = append(asked, text(condition["expression"]))
		}
		expression, policy = "("+rules.probing()+") || !(("+strings.Join(asked,
			") && (")+"))", admissionv1.Ignore
		if known["matchConditions"] = conditions; len(asked) == 0 {
			expression = rules.probing()
			delete(known, "matchConditions")
		}
	} else {
		known["matchConditions"] = append(conditions,
			map[string]any{"name": notRecentCondition, "expression": "!(" + expression + ")"})
	}
	recent["name"], recent["failurePolicy"] = r.Name, string(policy)
	recent["matchConditions"] = []any{map[string]any{"name": recentCondition, "expression": expression}}
	redirect(recent, r.Path)
	return slices.Insert(entries, at, any(recent))
}

// named tells whether an entry, or a condition, has that name.
func named(name string) func(any) bool {
	return func(item any) bool {
		document, _ := item.(map[string]any)
		return document["name"] == name
	}
}

// recall drops rules that are not recent any more. The time counts from when this process first saw them,
// since clocks of replicas differ.
func (p *publisher) recall(rules recentRules) recentRules {
	now := p.now()
	seen := map[recentRule]time.Time{}
	for _, rule := range rules {
		first, ok := p.firstSeen[rule]
		if !ok {
			first = now
		}
		seen[rule] = first
	}
	p.firstSeen = seen
	return slices.DeleteFunc(slices.Clone(rules),
		func(rule recentRule) bool { return now.Sub(seen[rule]) >= recentTime })
}

// remember writes the rules into the annotation, and removes it if there are none.
func (r recentRules) remember(object *unstructured.Unstructured, fields map[string]any) error {
	text := ""
	if len(r) > 0 {
		encoded, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encoding recent rules: %w", err)
		}
		text = string(encoded)
	}
	present, ok := object.GetAnnotations()[recentAnnotation]
	if present == text && (ok || text == "") {
		return nil
	}
	annotations := maps.Clone(object.GetAnnotations())
	// all annotations are written at once
	if whole, ok := fields["/metadata/annotations"].(map[string]any); ok {
		whole[recentAnnotation] = text
	} else if annotations == nil {
		fields["/metadata/annotations"] = map[string]any{recentAnnotation: text}
	} else {
		fields["/metadata/annotations/"+recentAnnotation] = text
	}
	return nil
}

// Announce makes the API server send the pods of a rule that is about to be stored, and returns when it does.
// The expression selects the pods of the rule. The probed API server then uses the entry; others do so within
// moments. An error says why the first pods may be missed.
//
// The object with the rule may not exist: anybody who reaches the port can send a review. So announcements
// are bounded, and an expression that API servers could not evaluate is not written.
func (k *Keeper) Announce(ctx context.Context, expression string) error {
	if k.options.Recent == nil || k.options.External || expression == "false" {
		return nil
	}
	if err := k.publisher.check(expression); err != nil {
		return err
	}
	if k.announcements.AllowN(k.clock.Now(), 1) {
		return k.announce(ctx, expression)
	}
	_, err := k.together.Do(ctx, everyPod, func(ctx context.Context) (none struct{}, err error) {
		if k.wideSince.IsZero() || k.clock.Since(k.wideSince) >= recentTime/3 {
			if err = k.announce(ctx, everyPod); err == nil {
				k.wideSince = k.clock.Now()
			}
		}
		return none, err
	})
	return err
}

// announce writes a rule, and returns when it is served.
func (k *Keeper) announce(ctx context.Context, expression string) error {
	token, err := k.write(ctx, expression)
	if err != nil || token == "" {
		return err
	}
	return k.served(ctx, token)
}

// write writes a rule, and returns its token; empty if pods are not sent here at all.
func (k *Keeper) write(ctx context.Context, expression string) (string, error) {
	k.announcing.Lock() // so that announcements race only with those of other replicas
	defer k.announcing.Unlock()
	for range maxRaces {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(mutatingKind)
		if err := k.client.Get(ctx, types.NamespacedName{Name: k.options.Mutating}, live); err != nil {
			return "", client.IgnoreNotFound(err)
		}
		present, _, err := unstructured.NestedSlice(live.Object, "webhooks")
		if err != nil {
			return "", err
		}
		rules, token := recentOf(live).add(expression, k.clock.Now())
		if rules == nil {
			return token, nil
		}
		entries := k.options.Recent.weave(present, rules)
		if !slices.ContainsFunc(entries, named(k.options.Recent.Name)) {
			return "", nil // there is no entry for pods
		}
		fields := map[string]any{"/webhooks": entries}
		if err := rules.remember(live, fields); err != nil {
			return "", err
		}
		switch err := k.patch(ctx, live, fields); {
		case err == nil:
			return token, nil
		case !errors.Is(err, errLostRace):
			return "", err
		}
	}
	return "", errLostRace
}

func (k *Keeper) patch(ctx context.Context, live *unstructured.Unstructured, fields map[string]any) error {
	operations := []jsonpatch.Operation{
		jsonpatch.NewOperation("replace", "/metadata/resourceVersion", live.GetResourceVersion()),
	}
	for pointer, value := range fields {
		operations = append(operations, jsonpatch.NewOperation("add", pointer, value))
	}
	body, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	if err := k.client.Patch(ctx, live,
		client.RawPatch(types.JSONPatchType, body)); apierrors.IsConflict(err) {
		return errLostRace
	} else if err != nil {
		return fmt.Errorf("changing %s: %w", live.GetName(), err)
	}
	return nil
}

// served returns when the API server sends the pods of the rule with the token.
func (k *Keeper) served(ctx context.Context, token string) error {
	ctx, cancel := context.WithTimeout(ctx, servedTime)
	defer cancel()
	for wait := servedSoon; ; wait = min(2*wait, servedLate) {
		err := k.options.Recent.Probe(ctx, token)
		if k.options.Recent.Found(err, token) {
			k.sleep(ctx, othersTime)
			return nil
		}
		if !k.sleep(ctx, wait) {
			return fmt.Errorf("the API server does not ask about its pods yet: %w",
				errors.Join(ctx.Err(), err))
		}
	}
}

// sleep tells whether the time passed before the context ended.
func (k *Keeper) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-k.clock.After(d):
		return true
	}
}
