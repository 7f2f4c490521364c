package sidecarset

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/expression"
)

// maxHotName is the length of a hot-upgrade container's name: "-1" follows.
const maxHotName = validation.DNS1123LabelMaxLength - 2

// validateContainers is what a SidecarSet asks of its containers beyond Kubernetes (SS-035, SS-036, SS-046 to
// SS-050).
func (p *problems) validateContainers(spec *appsv1beta1.SidecarSetSpec, env Environment, path *field.Path) {
	if err := spec.Volumes.DecodeError(); err != nil {
		p.add(field.Invalid(path.Child("volumes"), "(not shown)", err.Error()))
	}
	names := map[string]bool{}
	for _, list := range [][]appsv1beta1.SidecarContainer{spec.Containers, spec.InitContainers} {
		for i := range list {
			names[list[i].Name] = true
		}
	}

	for _, list := range []struct {
		containers []appsv1beta1.SidecarContainer
		path       *field.Path
		regular    bool
	}{{spec.Containers, path.Child("containers"), true},
		{spec.InitContainers, path.Child("initContainers"), false}} {
		for i := range list.containers {
			c, at := &list.containers[i], list.path.Index(i)
			if err := c.DecodeError(); err != nil {
				p.add(field.Invalid(at, "(not shown)", err.Error()))
				continue
			}
			p.add(validatePlace(c, at)...)
			p.add(validateKinds(c, at)...)
			p.add(validateTransfer(c.TransferEnv, at.Child("transferEnv"))...)
			p.add(validateTransferred(c.TransferEnv, at.Child("transferEnv"))...)
			native := !list.regular && IsNative(&c.Container)
			if native && !env.NativeSidecars {
				p.add(field.Invalid(at.Child("restartPolicy"), *c.RestartPolicy,
					"this version of Kubernetes has no native sidecars: it would drop restartPolicy and wait for the container to end"))
			}
			if c.ResourcesPolicy != nil {
				p.add(validateResources(c, at, list.regular || native)...)
			}
			if IsHot(c) {
				p.add(validateHot(c, at, names, list.regular)...)
			}
		}
	}
}

// validatePlace is what the reference checks of regular containers.
func validatePlace(c *appsv1beta1.SidecarContainer, at *field.Path) (errs field.ErrorList) {
	if c.PodInjectPolicy != appsv1beta1.BeforeAppContainerType &&
		c.PodInjectPolicy != appsv1beta1.AfterAppContainerType {
		errs = append(errs, field.Invalid(at.Child("podInjectPolicy"), c.PodInjectPolicy,
			"unsupported pod inject policy: must be BeforeAppContainer or AfterAppContainer"))
	}
	if !isSwitch(c.ShareVolumePolicy.Type) {
		errs = append(errs, field.Invalid(at.Child("shareVolumePolicy", "type"), c.ShareVolumePolicy.Type,
			"unsupported share volume policy: must be enabled or disabled"))
	}
	return errs
}

// validateKinds is what the reference does not check at all.
func validateKinds(c *appsv1beta1.SidecarContainer, at *field.Path) (errs field.ErrorList) {
	if policy := c.ShareVolumeDevicePolicy; policy != nil && policy.Type != "" && !isSwitch(policy.Type) {
		errs = append(errs, field.Invalid(at.Child("shareVolumeDevicePolicy", "type"), policy.Type,
			"unsupported share volume policy: must be enabled or disabled"))
	}
	if kind := c.UpgradeStrategy.UpgradeType; kind != appsv1beta1.SidecarContainerColdUpgrade &&
		kind != appsv1beta1.SidecarContainerHotUpgrade {
		errs = append(errs, field.NotSupported(at.Child("upgradeStrategy", "upgradeType"), kind,
			[]appsv1beta1.SidecarContainerUpgradeType{appsv1beta1.SidecarContainerColdUpgrade,
				appsv1beta1.SidecarContainerHotUpgrade}))
	}
	return errs
}

func isSwitch(kind appsv1beta1.ShareVolumePolicyType) bool {
	return kind == appsv1beta1.ShareVolumePolicyEnabled || kind == appsv1beta1.ShareVolumePolicyDisabled
}

var fieldPathForm = regexp.MustCompile(`^metadata\.(labels|annotations)\['([^']*)'\]$`)

// SourcePath splits metadata.labels['key'] or metadata.annotations['key'] (SS-036).
func SourcePath(path string) (labels bool, key string, ok bool) {
	parts := fieldPathForm.FindStringSubmatch(path)
	if parts == nil {
		return false, "", false
	}
	return parts[1] == "labels", parts[2], true
}

// validateTransfer is SS-036.
func validateTransfer(transfers []appsv1beta1.TransferEnvVar, path *field.Path) (errs field.ErrorList) {
	for i := range transfers {
		if transfers[i].SourceContainerNameFrom == nil ||
			transfers[i].SourceContainerNameFrom.FieldRef == nil {
			continue
		}
		ref, at := transfers[i].SourceContainerNameFrom.FieldRef,
			path.Index(i).Child("sourceContainerNameFrom", "fieldRef")
		switch ref.APIVersion {
		case "v1":
		case "":
			errs = append(errs, field.Required(at.Child("apiVersion"), "must be v1"))
		default:
			errs = append(errs, field.Invalid(at.Child("apiVersion"), ref.APIVersion, "must be v1"))
		}
		if ref.FieldPath == "" {
			errs = append(errs, field.Required(at.Child("fieldPath"),
				"must be metadata.labels['<key>'] or metadata.annotations['<key>']"))
			continue
		}
		labels, key, ok := SourcePath(ref.FieldPath)
		if !ok { // SS-D21
			errs = append(errs, field.Invalid(at.Child("fieldPath"), ref.FieldPath,
				"unsupported: must be metadata.labels['<key>'] or metadata.annotations['<key>']"))
			continue
		}
		if !labels {
			key = strings.ToLower(key)
		}
		for _, text := range validation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(at.Child("fieldPath"), ref.FieldPath, text))
		}
	}

	return errs
}

// validateTransferred asks for a source and a name (SS-D08).
func validateTransferred(transfers []appsv1beta1.TransferEnvVar, path *field.Path) (errs field.ErrorList) {
	for i := range transfers {
		transfer, at := &transfers[i], path.Index(i)
		if transfer.EnvName == "" && len(transfer.EnvNames) == 0 {
			errs = append(errs, field.Required(at.Child("envName"),
				"envName or envNames must say what to transfer"))
		}
		switch from := transfer.SourceContainerNameFrom; {
		case from != nil && from.FieldRef == nil:
			errs = append(errs, field.Required(at.Child("sourceContainerNameFrom", "fieldRef"),
				"must be given"))
		case from == nil && transfer.SourceContainerName == "":
			errs = append(errs, field.Required(at.Child("sourceContainerName"),
				"sourceContainerName or sourceContainerNameFrom must say from where"))
		}
	}

	return errs
}

// validateResources is SS-046 to SS-049 and SS-140.
func validateResources(c *appsv1beta1.SidecarContainer, at *field.Path, runs bool) field.ErrorList {
	policy, path := c.ResourcesPolicy, at.Child("resourcesPolicy")
	if len(c.Resources.Limits)+len(c.Resources.Requests) > 0 {
		return field.ErrorList{field.Invalid(path, policy,
			"resourcesPolicy and resources cannot be configured together: remove one")}
	}

	var errs field.ErrorList
	if !runs {
		errs = append(errs, field.Invalid(path, policy,
			"resourcesPolicy is only supported for containers with RestartPolicy Always"))
	}

	switch policy.TargetContainersMode {
	case appsv1beta1.TargetContainersModeSum, appsv1beta1.TargetContainersModeMax:
	default:
		errs = append(errs, field.NotSupported(path.Child("targetContainersMode"),
			policy.TargetContainersMode,
			[]appsv1beta1.TargetContainersModeType{appsv1beta1.TargetContainersModeSum,
				appsv1beta1.TargetContainersModeMax}))
	}
	if policy.TargetContainersNameRegex == "" {
		errs = append(errs, field.Invalid(path.Child("targetContainersNameRegex"), "",
			`invalid empty regex: ".*" is all containers`))
	} else if _, err := regexp.Compile(policy.TargetContainersNameRegex); err != nil {
		errs = append(errs, field.Invalid(path.Child("targetContainersNameRegex"),
			policy.TargetContainersNameRegex, fmt.Sprintf("invalid regex pattern: %v", err)))
	}
	limits, requests, expressions := policy.ResourcesExpr.Limits, policy.ResourcesExpr.Requests,
		path.Child("resourcesExpr")
	if limits == nil && requests == nil {
		errs = append(errs, field.Invalid(expressions, policy.ResourcesExpr,
			"at least one of limits or requests must be configured"))
	}
	check := func(text string, variable expression.Variable, at *field.Path) {
		if text == "" {
			return
		}
		if _, err := expression.Parse(text, variable); err != nil {
			errs = append(errs, field.Invalid(at, text, fmt.Sprintf("invalid expression: %v", err)))
		}
	}
	if limits != nil {
		check(limits.CPU, expression.CPU, expressions.Child("limits", "cpu"))
		check(limits.Memory, expression.Memory, expressions.Child("limits", "memory"))
	}
	if requests != nil {
		check(requests.CPU, expression.CPU, expressions.Child("requests", "cpu"))
		check(requests.Memory, expression.Memory, expressions.Child("requests", "memory"))
	}

	return errs
}

// validateHot is SS-050 and SS-W01c.
func validateHot(
	c *appsv1beta1.SidecarContainer, at *field.Path, names map[string]bool, regular bool,
) (errs field.ErrorList) {
	path := at.Child("upgradeStrategy")
	if !regular {
		return field.ErrorList{field.Invalid(path.Child("upgradeType"), c.UpgradeStrategy.UpgradeType,
			"init containers, native sidecars among them, cannot be upgraded by a second container")}
	}

	switch empty := c.UpgradeStrategy.HotUpgradeEmptyImage; empty {
	case "":
		errs = append(errs, field.Required(path.Child("hotUpgradeEmptyImage"),
			"HotUpgrade needs the image of the container that stands by"))
	case c.Image:
		errs = append(errs, field.Invalid(path.Child("hotUpgradeEmptyImage"), empty,
			"must differ from the image of the container"))
	}
	if len(c.Name) > maxHotName {
		errs = append(errs, field.TooLong(at.Child("name"), c.Name, maxHotName))
	}
	first, second := HotNames(c.Name)
	for _, name := range []string{first, second} {
		if names[name] {
			errs = append(errs, field.Invalid(at.Child("name"), c.Name,
				fmt.Sprintf("HotUpgrade makes containers %s and %s of it, and there is another container %s",
					first, second, name)))
		}
	}

	return errs
}
