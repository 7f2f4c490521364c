package v1alpha1

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// What the plain conversions lose on the way back is found by trying: after each conversion the result is converted back, and every piece
// that differs from the input is put into the annotation pub.ConversionData of the result, with the form in which it appears there. The way
// back drops the annotation (CS-256) and restores those pieces whose appearance was not changed meanwhile. So a change of a field in either
// version always wins over the annotation (CS-255: no resurrection). For objects without the annotation, as the reference stores them,
// there is nothing to restore (CS-258).

// remainder is the content of the annotation, by the name of the piece.
type remainder map[string]held

// held is one piece in the annotation: as it was in its own version, and as it appears in the other.
type held struct {
	Was json.RawMessage `json:"was"`
	As  json.RawMessage `json:"as"`
}

// piece is a part of a CloneSet that has different forms in the two versions.
type piece struct {
	name string
	// alpha and beta return the piece in the form of each version, as a value that encodes to JSON.
	alpha func(*CloneSet) any
	beta  func(*v1beta1.CloneSet) any
	// setAlpha and setBeta write back what alpha and beta returned.
	setAlpha func(*CloneSet, json.RawMessage)
	setBeta  func(*v1beta1.CloneSet, json.RawMessage)
}

// strategyForm is the v1beta1 form of the update type.
type strategyForm struct {
	Type    v1beta1.CloneSetUpdateStrategyType `json:"type,omitempty"`
	Policy  v1beta1.CloneSetPodUpdatePolicy    `json:"podUpdatePolicy,omitempty"`
	Rolling bool                               `json:"rollingUpdate,omitempty"`
}

// settingForm is a pre-download setting in either version.
type settingForm struct {
	Annotation *string             `json:"annotation,omitempty"`
	Field      *intstr.IntOrString `json:"field,omitempty"`
}

// excludeForm is "exclude PreparingDelete" in v1beta1.
type excludeForm struct {
	Field bool    `json:"field,omitempty"`
	Label *string `json:"label,omitempty"`
}

// cloneSetPieces are restored in this order; the presence of the in-place strategy comes last because settings may make it.
var cloneSetPieces = func() []piece {
	pieces := []piece{strategyPiece, excludePiece}
	for i := range preDownloads {
		pieces = append(pieces, settingPiece(&preDownloads[i]))
	}
	return append(pieces, inPlacePiece)
}()

var strategyPiece = piece{
	name:  "type",
	alpha: func(c *CloneSet) any { return c.Spec.UpdateStrategy.Type },
	beta: func(c *v1beta1.CloneSet) any {
		form := strategyForm{Type: c.Spec.UpdateStrategy.Type}
		if rolling := c.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
			form.Policy, form.Rolling = rolling.PodUpdatePolicy, true
		}
		return form
	},
	setAlpha: func(c *CloneSet, was json.RawMessage) { decode(was, &c.Spec.UpdateStrategy.Type) },
	setBeta: func(c *v1beta1.CloneSet, was json.RawMessage) {
		var form strategyForm
		if !decode(was, &form) {
			return
		}
		strategy, present := &c.Spec.UpdateStrategy, v1beta1.CloneSetPodUpdatePolicy("")
		if strategy.RollingUpdate != nil {
			present = strategy.RollingUpdate.PodUpdatePolicy
		}
		if alphaType(form.Type, form.Policy) != alphaType(strategy.Type, present) {
			return // conversion did not write it: the annotation must not set what the webhooks did not see
		}
		strategy.Type = form.Type
		if strategy.RollingUpdate == nil && form.Rolling {
			strategy.RollingUpdate = &v1beta1.RollingUpdateCloneSetStrategy{}
		}
		if rolling := strategy.RollingUpdate; rolling != nil {
			plain := rolling.PodUpdatePolicy
			rolling.PodUpdatePolicy = form.Policy
			if !form.Rolling {
				if isEmptyRolling(rolling) {
					strategy.RollingUpdate = nil
				} else {
					rolling.PodUpdatePolicy = plain
				}
			}
		}
	},
}

var excludePiece = piece{
	name:  "excludePreparingDelete",
	alpha: func(c *CloneSet) any { return lookup(c.Labels, pub.CloneSetExcludePreparingDelete) },
	beta: func(c *v1beta1.CloneSet) any {
		return excludeForm{
			Field: c.Spec.ScaleStrategy.ExcludePreparingDelete,
			Label: lookup(c.Labels, pub.CloneSetExcludePreparingDelete),
		}
	},
	setAlpha: func(c *CloneSet, was json.RawMessage) {
		var label *string
		if decode(was, &label) {
			restore(&c.Labels, pub.CloneSetExcludePreparingDelete, label)
		}
	},
	setBeta: func(c *v1beta1.CloneSet, was json.RawMessage) {
		var form excludeForm
		if decode(was, &form) {
			c.Spec.ScaleStrategy.ExcludePreparingDelete = form.Field
			restore(&c.Labels, pub.CloneSetExcludePreparingDelete, form.Label)
		}
	},
}

func settingPiece(p *preDownload) piece {
	form := func(meta *metav1.ObjectMeta, strategy *pub.InPlaceUpdateStrategy) any {
		return settingForm{Annotation: lookup(meta.Annotations, p.key), Field: p.field(strategy)}
	}
	set := func(meta *metav1.ObjectMeta, strategy **pub.InPlaceUpdateStrategy, was json.RawMessage) {
		var form settingForm
		if !decode(was, &form) {
			return
		}
		restore(&meta.Annotations, p.key, form.Annotation)
		if *strategy == nil && form.Field != nil {
			*strategy = &pub.InPlaceUpdateStrategy{}
		}
		if *strategy != nil {
			p.set(*strategy, form.Field)
		}
	}
	return piece{
		name:  p.key,
		alpha: func(c *CloneSet) any { return form(&c.ObjectMeta, c.Spec.UpdateStrategy.InPlaceUpdateStrategy) },
		beta:  func(c *v1beta1.CloneSet) any { return form(&c.ObjectMeta, inPlaceOf(c)) },
		setAlpha: func(c *CloneSet, was json.RawMessage) {
			set(&c.ObjectMeta, &c.Spec.UpdateStrategy.InPlaceUpdateStrategy, was)
		},
		setBeta: func(c *v1beta1.CloneSet, was json.RawMessage) {
			strategy := inPlaceOf(c)
			set(&c.ObjectMeta, &strategy, was)
			setInPlace(c, strategy)
		},
	}
}

// inPlacePiece is the presence of inPlaceUpdateStrategy, which conversion adds for settings that were annotations.
var inPlacePiece = piece{
	name:  "inPlaceUpdateStrategy",
	alpha: func(c *CloneSet) any { return c.Spec.UpdateStrategy.InPlaceUpdateStrategy != nil },
	beta:  func(c *v1beta1.CloneSet) any { return inPlaceOf(c) != nil },
	setAlpha: func(c *CloneSet, was json.RawMessage) {
		c.Spec.UpdateStrategy.InPlaceUpdateStrategy = presence(c.Spec.UpdateStrategy.InPlaceUpdateStrategy, was)
	},
	setBeta: func(c *v1beta1.CloneSet, was json.RawMessage) { setInPlace(c, presence(inPlaceOf(c), was)) },
}

func presence(strategy *pub.InPlaceUpdateStrategy, was json.RawMessage) *pub.InPlaceUpdateStrategy {
	var present bool
	switch {
	case !decode(was, &present):
		return strategy
	case present && strategy == nil:
		return &pub.InPlaceUpdateStrategy{}
	case !present && strategy != nil && *strategy == (pub.InPlaceUpdateStrategy{}):
		return nil
	}
	return strategy
}

func inPlaceOf(c *v1beta1.CloneSet) *pub.InPlaceUpdateStrategy {
	if c.Spec.UpdateStrategy.RollingUpdate == nil {
		return nil
	}
	return c.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy
}

func setInPlace(c *v1beta1.CloneSet, strategy *pub.InPlaceUpdateStrategy) {
	if c.Spec.UpdateStrategy.RollingUpdate == nil {
		if strategy == nil {
			return
		}
		c.Spec.UpdateStrategy.RollingUpdate = &v1beta1.RollingUpdateCloneSetStrategy{}
	}
	c.Spec.UpdateStrategy.RollingUpdate.InPlaceUpdateStrategy = strategy
}

// restoreBeta restores the piece in out, the conversion of in, if in still has the form that the annotation expects.
func (p piece) restoreBeta(from remainder, in *CloneSet, out *v1beta1.CloneSet) {
	if h, ok := from[p.name]; ok && sameJSON(h.As, encode(p.alpha(in))) {
		p.setBeta(out, h.Was)
	}
}

// restoreAlpha is restoreBeta for the other direction.
func (p piece) restoreAlpha(from remainder, in *v1beta1.CloneSet, out *CloneSet) {
	if h, ok := from[p.name]; ok && sameJSON(h.As, encode(p.beta(in))) {
		p.setAlpha(out, h.Was)
	}
}

// holdAlpha keeps the piece of in in the annotation if back, the conversion of out, does not have it.
func (p piece) holdAlpha(to remainder, in, back *CloneSet, out *v1beta1.CloneSet) {
	if was := encode(p.alpha(in)); !bytes.Equal(was, encode(p.alpha(back))) {
		to[p.name] = held{Was: was, As: encode(p.beta(out))}
	}
}

// holdBeta is holdAlpha for the other direction.
func (p piece) holdBeta(to remainder, in, back *v1beta1.CloneSet, out *CloneSet) {
	if was := encode(p.beta(in)); !bytes.Equal(was, encode(p.beta(back))) {
		to[p.name] = held{Was: was, As: encode(p.alpha(out))}
	}
}

// takeRemainder removes the private annotation and returns its content; unreadable content counts as none.
func takeRemainder(object metav1.Object) remainder {
	annotations := object.GetAnnotations()
	text, ok := annotations[pub.ConversionData]
	if !ok {
		return nil
	}
	delete(annotations, pub.ConversionData)
	var r remainder
	if !decode(json.RawMessage(text), &r) {
		return nil
	}
	return r
}

func putRemainder(object metav1.Object, r remainder) {
	if len(r) == 0 {
		return
	}
	annotations := object.GetAnnotations()
	setKey(&annotations, pub.ConversionData, string(encode(r)))
	object.SetAnnotations(annotations)
}

func lookup(m map[string]string, key string) *string {
	if value, ok := m[key]; ok {
		return &value
	}
	return nil
}

func restore(m *map[string]string, key string, value *string) {
	if value == nil {
		delete(*m, key)
		return
	}
	setKey(m, key, *value)
}

// encode encodes the forms of this file, which cannot fail.
func encode(value any) json.RawMessage {
	data, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return data
}

func decode(data json.RawMessage, into any) bool { return json.Unmarshal(data, into) == nil }

// sameJSON compares encodings of one form, because the annotation may have been reformatted.
func sameJSON(a, b json.RawMessage) bool {
	var left, right bytes.Buffer
	if json.Compact(&left, a) != nil || json.Compact(&right, b) != nil {
		return false
	}
	return bytes.Equal(left.Bytes(), right.Bytes())
}
