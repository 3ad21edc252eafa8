"""What a model must keep, as one function for each rule: of the model's class, the data's specification and values.

They raise AssertionError where a model breaks the rule. All models that are found go through them, and so do models
with planted faults, which must not get through.
"""

from contract import rows, steps
from nnexp.data.data_spec import DataSpec

KINDS = {
    "a vector": DataSpec(kind="vector", shape=(5,), outputs=3),
    "a sequence": DataSpec(kind="sequence", shape=(6, 3), outputs=2),
    "tokens": DataSpec(kind="tokens", shape=(7,), outputs=4, vocab=5),
    "an image": DataSpec(kind="image", shape=(3, 8, 10), outputs=3),
    "one value": DataSpec(kind="sequence", shape=(6, 1), target="value", outputs=1),
}
PER_STEP = {
    "a sequence per step": DataSpec(kind="sequence", shape=(6, 3), outputs=2, per_step=True),
    "tokens per step": DataSpec(kind="tokens", shape=(7,), outputs=5, vocab=5, per_step=True),
    "two values per step": DataSpec(kind="sequence", shape=(6, 1), target="value", outputs=2, per_step=True),
}

OF_ROWS = [
    rows.gives_one_finite_number_per_class_or_value,
    rows.every_parameter_gets_a_gradient,
    rows.the_global_seed_decides_the_weights,
    rows.seeds_no_global_generator,
    rows.a_row_depends_neither_on_other_rows_nor_on_their_order,
    rows.an_output_depends_on_no_batch_before,
    rows.all_that_changes_in_training_is_in_the_state,
    rows.weights_saved_and_loaded_give_the_same_output,
    rows.three_models_stacked_give_what_each_gives_alone,
    rows.three_models_stacked_have_the_gradients_that_each_has_alone,
    steps.padding_moves_no_output,
    steps.padding_moves_no_output_of_models_stacked,
]
ALWAYS = [*OF_ROWS, steps.no_output_depends_on_a_later_position]
