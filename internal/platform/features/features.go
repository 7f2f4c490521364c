// Package features has the feature gates by their names in the reference, with the defaults of
// docs/spec/operations.md.
package features

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/featuregate"
)

// Feature gates; what each does stands in docs/spec/operations.md.
const (
	PodWebhook                                featuregate.Feature = "PodWebhook"
	KruiseDaemon                              featuregate.Feature = "KruiseDaemon"
	DaemonWatchingPod                         featuregate.Feature = "DaemonWatchingPod"
	WorkloadSpread                            featuregate.Feature = "WorkloadSpread"
	PodUnavailableBudgetDeleteGate            featuregate.Feature = "PodUnavailableBudgetDeleteGate"
	InPlaceUpdateEnvFromMetadata              featuregate.Feature = "InPlaceUpdateEnvFromMetadata"
	StatefulSetAutoDeletePVC                  featuregate.Feature = "StatefulSetAutoDeletePVC"
	PodProbeMarkerGate                        featuregate.Feature = "PodProbeMarkerGate"
	PodIndexLabel                             featuregate.Feature = "PodIndexLabel"
	ResourcesDeletionProtection               featuregate.Feature = "ResourcesDeletionProtection"
	ResourceDistributionGate                  featuregate.Feature = "ResourceDistributionGate"
	PodUnavailableBudgetUpdateGate            featuregate.Feature = "PodUnavailableBudgetUpdateGate"
	CloneSetShortHash                         featuregate.Feature = "CloneSetShortHash"
	KruisePodReadinessGate                    featuregate.Feature = "KruisePodReadinessGate"
	PreDownloadImageForInPlaceUpdate          featuregate.Feature = "PreDownloadImageForInPlaceUpdate"
	PreDownloadImageForDaemonSetUpdate        featuregate.Feature = "PreDownloadImageForDaemonSetUpdate"
	ImagePullJobGate                          featuregate.Feature = "ImagePullJobGate"
	CloneSetPartitionRollback                 featuregate.Feature = "CloneSetPartitionRollback"
	CloneSetEventHandlerOptimization          featuregate.Feature = "CloneSetEventHandlerOptimization"
	PreparingUpdateAsUpdate                   featuregate.Feature = "PreparingUpdateAsUpdate"
	RecreatePodWhenChangeVCTInCloneSetGate    featuregate.Feature = "RecreatePodWhenChangeVCTInCloneSetGate"
	TemplateNoDefaults                        featuregate.Feature = "TemplateNoDefaults"
	SidecarSetPatchPodMetadataDefaultsAllowed featuregate.Feature = "SidecarSetPatchPodMetadataDefaultsAllowed"
	EnableSortSidecarContainerByName          featuregate.Feature = "EnableSortSidecarContainerByName"
	SidecarSetInPlaceUpdateNativeSidecar      featuregate.Feature = "SidecarSetInPlaceUpdateNativeSidecar"
	SidecarTerminator                         featuregate.Feature = "SidecarTerminator"
	EnhancedLivenessProbe                     featuregate.Feature = "EnhancedLivenessProbe"
	EnablePodProbeMarkerOnServerless          featuregate.Feature = "EnablePodProbeMarkerOnServerless"
	StatefulSetStartOrdinal                   featuregate.Feature = "StatefulSetStartOrdinal"
	StatefulSetAutoResizePVCGate              featuregate.Feature = "StatefulSetAutoResizePVCGate"
	InPlaceWorkloadVerticalScaling            featuregate.Feature = "InPlaceWorkloadVerticalScaling"
	InPlacePodVerticalScaling                 featuregate.Feature = "InPlacePodVerticalScaling"
	DeletionProtectionForCRDCascadingGate     featuregate.Feature = "DeletionProtectionForCRDCascadingGate"
	ForceDeleteTimeoutExpectationGate         featuregate.Feature = "ForceDeleteTimeoutExpectationGate"
	EnableExternalCerts                       featuregate.Feature = "EnableExternalCerts"
	DefaultHostNetworkHostPortsInPodTemplates featuregate.Feature = "DefaultHostNetworkHostPortsInPodTemplates"
	DaemonSetPruneIneligibleNodes             featuregate.Feature = "DaemonSetPruneIneligibleNodes"
	PersistentPodStateAutoCleanup             featuregate.Feature = "PersistentPodStateAutoCleanup"
)

// gate is a feature gate with the requirement that it belongs to, and the release that has it first.
type gate struct {
	requirement, since string
	spec               featuregate.FeatureSpec
}

func on(stage featuregate.FeatureSpec) featuregate.FeatureSpec { stage.Default = true; return stage }

var (
	alpha = featuregate.FeatureSpec{PreRelease: featuregate.Alpha}
	beta  = featuregate.FeatureSpec{PreRelease: featuregate.Beta}
)

// gates are the gates with their defaults: the reference's, but for those that are turned on here because
// they do not change what existing objects do in a way that their owner would not expect.
var gates = map[featuregate.Feature]gate{
	PodWebhook:                                {"OPS-021", "0.1", on(beta)},
	KruiseDaemon:                              {"OPS-036", "0.1", on(beta)},
	DaemonWatchingPod:                         {"ND-056", "0.1", on(beta)},
	WorkloadSpread:                            {"OPS-062", "0.1", on(beta)},
	PodUnavailableBudgetDeleteGate:            {"PUB-016", "0.1", on(beta)},
	InPlaceUpdateEnvFromMetadata:              {"IPU-091", "0.1", on(beta)},
	StatefulSetAutoDeletePVC:                  {"ASTS-017", "0.1", on(beta)},
	PodProbeMarkerGate:                        {"PPM-020", "0.1", on(beta)},
	PodIndexLabel:                             {"ASTS-097", "0.1", on(beta)},
	ResourcesDeletionProtection:               {"DP-002", "0.1", on(beta)},
	ResourceDistributionGate:                  {"RD-020", "0.1", beta},
	PodUnavailableBudgetUpdateGate:            {"PUB-016", "0.1", alpha},
	CloneSetShortHash:                         {"CS-050", "0.1", alpha},
	KruisePodReadinessGate:                    {"IPU-140", "0.1", alpha},
	PreDownloadImageForInPlaceUpdate:          {"CS-200", "0.1", on(alpha)},
	PreDownloadImageForDaemonSetUpdate:        {"ADS-180", "0.1", alpha},
	ImagePullJobGate:                          {"IMG-020", "0.1", on(alpha)},
	CloneSetPartitionRollback:                 {"CS-098", "0.1", alpha},
	CloneSetEventHandlerOptimization:          {"CS-075", "0.1", alpha},
	PreparingUpdateAsUpdate:                   {"CS-115", "0.1", on(alpha)},
	RecreatePodWhenChangeVCTInCloneSetGate:    {"IPU-046", "0.1", on(alpha)},
	TemplateNoDefaults:                        {"BJ-015", "0.1", alpha},
	SidecarSetPatchPodMetadataDefaultsAllowed: {"SS-162", "0.1", alpha},
	EnableSortSidecarContainerByName:          {"SS-100", "0.1", alpha},
	SidecarSetInPlaceUpdateNativeSidecar:      {"OPS-030", "0.1", on(alpha)},
	SidecarTerminator:                         {"JST-020", "0.1", on(alpha)},
	EnhancedLivenessProbe:                     {"PPM-120", "0.1", alpha},
	EnablePodProbeMarkerOnServerless:          {"OPS-036", "0.1", alpha},
	StatefulSetStartOrdinal:                   {"ASTS-090", "0.1", on(alpha)},
	StatefulSetAutoResizePVCGate:              {"ASTS-018", "0.1", on(alpha)},
	InPlaceWorkloadVerticalScaling:            {"IPU-035", "0.1", on(alpha)},
	InPlacePodVerticalScaling:                 {"SS-255", "0.1", alpha},
	DeletionProtectionForCRDCascadingGate:     {"DP-003", "0.1", alpha},
	ForceDeleteTimeoutExpectationGate:         {"CS-074", "0.1", alpha},
	EnableExternalCerts:                       {"OPS-050", "0.1", alpha},
	DefaultHostNetworkHostPortsInPodTemplates: {"CS-014", "0.1", alpha},
	DaemonSetPruneIneligibleNodes:             {"ADS-121", "0.1", on(alpha)},
	PersistentPodStateAutoCleanup:             {"PPS-097", "0.1", alpha},
}

func specs() map[featuregate.Feature]featuregate.FeatureSpec {
	specs := map[featuregate.Feature]featuregate.FeatureSpec{}
	for feature, gate := range gates {
		specs[feature] = gate.spec
	}
	return specs
}

// aliases are names in the reference's documentation that differ from the names of its gates (OPS-035).
var aliases = map[string]featuregate.Feature{
	"EnhancedLivenessProbeGate":                EnhancedLivenessProbe,
	"ForceDeleteTimeoutExpectationFeatureGate": ForceDeleteTimeoutExpectationGate,
}

// ignored are gates that only turn off the fix of a defect; they are accepted and do nothing (OPS-038).
var ignored = map[featuregate.Feature]string{
	CloneSetEventHandlerOptimization:  "events are always filtered by what they change",
	ForceDeleteTimeoutExpectationGate: "doubtful writes are always settled by a live read",
}

// Implication is what one gate does to others (OPS-036): where Cause has the Value, the Others are Forced.
type Implication struct {
	Cause         featuregate.Feature
	Value, Forced bool
	Others        []featuregate.Feature
}

// Implications are applied in this order.
var Implications = []Implication{
	{PodWebhook, false, false, []featuregate.Feature{KruisePodReadinessGate, PodUnavailableBudgetDeleteGate,
		PodUnavailableBudgetUpdateGate,
		WorkloadSpread, SidecarSetPatchPodMetadataDefaultsAllowed, EnhancedLivenessProbe,
		EnablePodProbeMarkerOnServerless}},
	{KruiseDaemon, false, false, []featuregate.Feature{PreDownloadImageForInPlaceUpdate,
		PreDownloadImageForDaemonSetUpdate, DaemonWatchingPod,
		InPlaceUpdateEnvFromMetadata, PodProbeMarkerGate, SidecarTerminator, ImagePullJobGate,
		EnhancedLivenessProbe}},
	{PreDownloadImageForInPlaceUpdate, true, true, []featuregate.Feature{ImagePullJobGate}},
	{PreDownloadImageForDaemonSetUpdate, true, true, []featuregate.Feature{ImagePullJobGate}},
	{ResourcesDeletionProtection, false, false, []featuregate.Feature{DeletionProtectionForCRDCascadingGate}},
}

// Known are all gates with their defaults and stages.
func Known() map[featuregate.Feature]featuregate.FeatureSpec { return specs() }

// Aliases are other names of gates, which are accepted with a warning (OPS-035).
func Aliases() map[string]featuregate.Feature { return maps.Clone(aliases) }

// Gates are the gates in force.
type Gates struct {
	gate featuregate.MutableFeatureGate
	set  map[featuregate.Feature]bool
	// Warnings say which entries of the user's list were changed or have no effect.
	Warnings []string
}

// Parse reads a list such as "A=true,B=false"; empty means the defaults. An unknown name is an error that
// names it (OPS-038).
func Parse(list string) (*Gates, error) {
	g := &Gates{gate: featuregate.NewFeatureGate(), set: map[featuregate.Feature]bool{}}
	if err := g.gate.Add(specs()); err != nil {
		return nil, fmt.Errorf("declaring feature gates: %w", err)
	}

	parts := strings.Split(list, ",")
	for i, part := range parts {
		name, value, _ := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if feature, ok := aliases[name]; ok {
			g.Warnings = append(g.Warnings, fmt.Sprintf("feature gate %s is called %s", name, feature))
			name = string(feature)
		}
		if why, ok := ignored[featuregate.Feature(name)]; ok {
			g.Warnings = append(g.Warnings, fmt.Sprintf("feature gate %s does nothing: %s", name, why))
		}
		if wish, err := strconv.ParseBool(value); err == nil { // an invalid value is refused below
			g.set[featuregate.Feature(name)] = wish
		}
		parts[i] = name
		if value != "" {
			parts[i] += "=" + value
		}
	}

	if err := g.gate.Set(strings.Join(parts, ",")); err != nil {
		return nil, fmt.Errorf("feature gates: %w", err)
	}

	g.imply()
	return g, nil
}

// imply applies the effects of gates on other gates (OPS-036).
func (g *Gates) imply() {
	for _, rule := range Implications {
		if g.gate.Enabled(rule.Cause) != rule.Value {
			continue
		}
		for _, other := range rule.Others {
			if g.gate.Enabled(other) == rule.Forced {
				continue
			}
			if wish, ok := g.set[other]; ok && wish != rule.Forced {
				g.Warnings = append(g.Warnings,
					fmt.Sprintf("feature gate %s=%v is overridden because %s is %v", other, wish,
						rule.Cause, rule.Value))
			}
			if err := g.gate.SetFromMap(map[string]bool{string(other): rule.Forced}); err != nil {
				g.Warnings = append(g.Warnings, err.Error())
			}
		}
	}
}

// Enabled tells whether the gate is on.
func (g *Gates) Enabled(feature featuregate.Feature) bool { return g.gate.Enabled(feature) }

// String lists all gates in force, for the log (OPS-037).
func (g *Gates) String() string {
	var parts []string
	for _, feature := range slices.Sorted(maps.Keys(specs())) {
		parts = append(parts, fmt.Sprintf("%s=%v", feature, g.Enabled(feature)))
	}
	return strings.Join(parts, ",")
}

// Metric returns the gauge kruise_feature_enabled{name,stage} (OPS-037).
func (g *Gates) Metric() prometheus.Collector {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kruise_feature_enabled",
		Help: "Feature gates in force.",
	},
		[]string{"name", "stage"})
	for feature, spec := range specs() {
		value := 0.0
		if g.Enabled(feature) {
			value = 1
		}
		gauge.WithLabelValues(string(feature), string(spec.PreRelease)).Set(value)
	}
	return gauge
}
