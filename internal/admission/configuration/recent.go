package configuration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
)

// Recent defines how the pods of recent rules are sent. A rule is the selection of pods by a SidecarSet or
// WorkloadSpread, and it is recent if it was just accepted. Its pods have an entry of their own, next to the
// one for all known rules. The webhook announces a rule before it is stored, so that the API server also
// sends its first pod. The path shows the called replica that its cache may not have the rule yet
// (docs/decisions/0017-pods-of-sidecarsets.md).
type Recent struct {
	// Of is the entry for known rules. While there are recent rules, a copy of it exists with this name and
	// path.
	Of, Name, Path string
	// Probe sends a request whose answer shows whether the new entry is in force; Found reports whether an
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
	// recentTime is how long a rule is recent. After that, every replica has it in its cache: client-go notices
	// within 45 s that a connection is dead, and waits for up to a minute before it watches again what it could not
	// watch several times. A rule is not written again within againTime.
	recentTime, againTime = 90 * time.Second, 10 * time.Second
	// maxRecentLength and maxRecentRules limit the recent rules. Above these limits, this entry sends all
	// pods for a while.
	maxRecentLength, maxRecentRules = 4000, 100
	// servedTime is how long the API server may take to serve a changed entry. It is probed again after
	// servedSoon; the pause doubles each time, up to servedLate.
	servedTime, servedSoon, servedLate = 3 * time.Second, 20 * time.Millisecond, 500 * time.Millisecond
	// announcementsASecond and announcementsAtOnce limit the announcements whose rules are written one by
	// one. Above these limits, this entry sends all pods for a while, so that forged announcements do not
	// make others get lost.
	announcementsASecond, announcementsAtOnce = 2, 20
	// everyPod is the rule that selects all pods.
	everyPod = "true"
	// othersTime is how much longer other API servers may take than the one that was probed.
	othersTime = 100 * time.Millisecond
)

// recentRules is the content of the annotation.
type recentRules []recentRule

// recentRule is one rule: which pods it selects, and when it was announced, by the clock of the announcing
// replica, in RFC 3339. A probe with its token shows whether it is served.
type recentRule struct {
	Expression string `json:"expression"`
	At         string `json:"at"`
	Token      string `json:"token"`
}

// add adds a rule and returns its token. It returns nil rules if the rule was already announced recently. Too
// many rules become a single one for all pods, which is kept as long as they would have been.
func (r recentRules) add(expression string, now time.Time) (recentRules, string) {
	for _, rule := range r {
		announced, err := time.Parse(time.RFC3339, rule.At)
		if covers := rule.Expression == expression || rule.Expression == everyPod; covers && err == nil &&
			now.Sub(announced).Abs() < againTime {
			return nil, rule.Token
		}
	}

	rule := recentRule{expression, now.UTC().Format(time.RFC3339), rand.String(8)}
	rules := append(slices.DeleteFunc(slices.Clone(r),
		func(former recentRule) bool { return former.Expression == expression }), rule)
	if len(rules) > maxRecentRules || len(rules.expression()) > maxRecentLength {
		rule.Expression = everyPod
		rules = recentRules{rule}
	}

	return rules, rule.Token
}

// wide reports whether the rules select all pods.
func (r recentRules) wide() bool {
	return len(r.expression()) > maxRecentLength ||
		slices.ContainsFunc(r, func(rule recentRule) bool { return rule.Expression == everyPod })
}

// recentOf returns the recent rules of a configuration. An unreadable annotation counts as none.
func recentOf(object *unstructured.Unstructured) recentRules {
	var rules recentRules
	if json.Unmarshal([]byte(object.GetAnnotations()[recentAnnotation]), &rules) != nil {
		return nil
	}
	return rules
}

// ProbeAnnotation is set on pods that are created in a dry run, to see whether the rule whose token is its
// value is served.
const ProbeAnnotation = "apps.kruise.io/probe-of-webhook"

// expression returns the match condition for the pods of recent rules, and for probing pods.
func (r recentRules) expression() string {
	var parts []string
	for _, rule := range r {
		parts = append(parts, rule.Expression)
	}
	slices.Sort(parts)
	return "(" + strings.Join(append(parts, r.probing()), ") || (") + ")"
}

// probing returns the match condition for probing pods.
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

// weave puts the entry of recent rules before that of known rules, with conditions that make only one of them
// match a pod. Without recent rules there is no such entry.
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
		// The rules may be forged, see Announce, so they must not block the creation of all pods while no
		// manager answers. Pods of known rules are sent as before.
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

// named returns a function that reports whether an entry or a condition has that name.
func named(name string) func(any) bool {
	return func(item any) bool {
		document, _ := item.(map[string]any)
		return document["name"] == name
	}
}

// recall drops rules that are no longer recent. The time counts from when this process first saw them,
// because the clocks of replicas differ.
func (p *Publisher) recall(rules recentRules) recentRules {
	now := p.clock.Now()
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

// remember writes the rules into the annotation, or empties it if there are none.
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
	// All annotations are written at once.
	if whole, ok := fields["/metadata/annotations"].(map[string]any); ok {
		whole[recentAnnotation] = text
	} else if annotations == nil {
		fields["/metadata/annotations"] = map[string]any{recentAnnotation: text}
	} else {
		fields["/metadata/annotations/"+recentAnnotation] = text
	}

	return nil
}
